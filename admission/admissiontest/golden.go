package admissiontest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

var update = flag.Bool("update", false, "write what the plugins answer into the golden files")

// Case is a golden file: testdata/<name>.yaml.
type Case struct {
	// About describes what the case shows. Required.
	About string `json:"about"`
	// Config is the plugin's configuration file.
	Config string `json:"config,omitempty"`
	// Manifests are the documents in the folder that Config names.
	Manifests []json.RawMessage `json:"manifests,omitempty"`
	// Kubeconfig is the kubeconfig file that Config names.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Cluster are the objects in the cluster, in the form in which users create them,
	// without defaults.
	Cluster []json.RawMessage `json:"cluster,omitempty"`
	// Error is a part of the error that New returns for Config. Such a case has no
	// request.
	Error string `json:"error,omitempty"`
	// Phase is "mutate" or "validate".
	Phase string `json:"phase,omitempty"`
	// Recording is the name of a review of package corpus from which the request is
	// taken.
	Recording string `json:"recording,omitempty"`
	// Request is an admission.k8s.io/v1 AdmissionRequest; with a Recording, it
	// is a JSON merge patch (RFC 7386) for the recorded one.
	Request json.RawMessage `json:"request,omitempty"`
	// Failure is a part of the error with which the plugin fails. Such a case has no
	// response. Without Failure, the case fails if the plugin fails.
	Failure string `json:"failure,omitempty"`
	// Response is the expected AdmissionResponse, as Answer returns it.
	Response json.RawMessage `json:"response,omitempty"`
}

// Run runs each golden file in testdata as a test of the plugin. With the flag -update,
// it writes the plugin's responses into the files.
func Run(t *testing.T, plugin admission.Plugin) {
	t.Helper()
	files, _ := filepath.Glob("testdata/*.yaml") // the pattern is correct
	if len(files) == 0 {
		t.Fatal("no golden files: got no testdata/*.yaml, want one for each case of the plugin; write about, phase and recording, " +
			"and let go test -update add the response")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) { runFile(t, plugin, file) })
	}
}

// Concurrently sends each golden file in the folder to the plugin, and then in several goroutines at
// the same time, as a server does. That is a test for the race detector: only the first answer is
// checked, because those of a plugin that counts requests depend on their order.
func Concurrently(t *testing.T, plugin admission.Plugin, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files in %s: %v", folder, err)
	}
	for _, file := range files {
		c := readCase(t, file)
		if c.Error != "" {
			continue // it has no request
		}
		chain, err := c.chain(t, plugin)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		c.check(t, chain)
		phase, body := c.phase(t), c.body(t)
		var asked sync.WaitGroup
		for range 4 {
			asked.Go(func() {
				review := codec.Acquire()
				defer review.Release()
				for range 2 { // the second one in memory of the first
					if err := review.Decode(body); err != nil {
						t.Errorf("%s: %v", file, err)
						return
					}
					_, _ = chain.Review(t.Context(), review, phase) // answers are not checked
					review.AppendResponse(nil)
				}
			})
		}
		asked.Wait()
	}
}

func readCase(t *testing.T, file string) (c Case) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, &c); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if c.About == "" {
		t.Fatalf("%s: about: got nothing, want what the case shows", file)
	}
	return c
}

// chain returns a chain of the plugin with the configuration and cluster of the case.
func (c *Case) chain(t *testing.T, plugin admission.Plugin) (*admission.Chain, error) {
	enabled := admission.Enabled{Config: []byte(c.Config), Manifests: c.manifests(), Kubeconfig: []byte(c.Kubeconfig)}
	return newChain(plugin, enabled, c.cluster(t))
}

func runFile(t *testing.T, plugin admission.Plugin, file string) {
	c := readCase(t, file)
	chain, err := c.chain(t, plugin)
	if c.Error != "" {
		if err == nil || !strings.Contains(err.Error(), c.Error) {
			t.Fatalf("configuration: got error %v, want one with %q", err, c.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if *update && c.Failure == "" {
		c.Response = Answer(t, chain, c.phase(t), c.body(t))
		writeFile(t, file, c)
		return
	}
	c.check(t, chain)
	if !plugin.Calls && plugin.SideEffects == "" {
		c.checkExplained(t, chain, &plugin)
	}
}

// checkExplained requires that the plugin decides the same if it explains itself, and that it does so in its phases only.
func (c *Case) checkExplained(t *testing.T, chain *admission.Chain, plugin *admission.Plugin) {
	t.Helper()
	takesPart := plugin.Validates
	if c.phase(t) == admission.Mutate {
		takesPart = plugin.Mutates
	}
	explaining := chain.Select(func(*admission.Plugin, *admission.Settings) bool { return true })
	explanations := 0
	explaining.Explain = func(x *admission.Explanation) {
		if explanations++; x.Why == "" || x.Asked != (x.Outcome != "") {
			t.Errorf("%s\ngot explanation %+v, want one with a reason, and with an outcome if the plugin was asked", c.About, x)
		}
	}
	c.check(t, explaining)
	if (explanations > 0) != takesPart {
		t.Errorf("%s\ngot %d explanations, and the plugin takes part: %v", c.About, explanations, takesPart)
	}
}

// check compares the plugin's response or failure with that of the case.
func (c *Case) check(t testing.TB, chain *admission.Chain) {
	t.Helper()
	if c.Failure == "" {
		if len(c.Response) == 0 {
			t.Fatalf("%s\nresponse: got none, want one; go test -update writes it", c.About)
		}
		if got := Answer(t, chain, c.phase(t), c.body(t)); !EqualJSON(t, got, c.Response) {
			t.Errorf("%s\ngot another response\n%s", c.About, Difference(got, c.Response))
		}
		return
	}
	review := codec.Acquire()
	defer review.Release()
	if _, failure := ask(t, chain, c.phase(t), review, c.body(t)); failure == nil || !strings.Contains(failure.Error(), c.Failure) {
		t.Errorf("%s\ngot failure %v, want one with %q", c.About, failure, c.Failure)
	}
}

// cluster writes the objects of the case to a folder and returns the options to read it.
func (c *Case) cluster(t *testing.T) cluster.Options {
	dir := t.TempDir()
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": c.Cluster})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cluster.json"), list, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Options{Dir: dir}
}

// manifests returns the manifests of the case, one file for each.
func (c *Case) manifests() (files []admission.File) {
	for i, document := range c.Manifests {
		files = append(files, admission.File{Name: fmt.Sprintf("%d.yaml", i), Content: document})
	}
	return files
}

func (c *Case) phase(t testing.TB) admission.Phase {
	switch c.Phase {
	case "mutate":
		return admission.Mutate
	case "validate":
		return admission.Validate
	}
	t.Fatalf("phase: got %q, want mutate or validate", c.Phase)
	return 0
}

// body returns the AdmissionReview of the case.
func (c *Case) body(t testing.TB) []byte {
	request := c.Request
	if c.Recording != "" {
		var review struct{ Request json.RawMessage }
		recording, err := corpus.Read(c.Recording)
		if err != nil {
			t.Fatalf("recording: got %q, want the name of a recording, such as pods-create-v1-1.json; corpus.Names lists them: %v",
				c.Recording, err)
		}
		if err := json.Unmarshal(recording, &review); err != nil {
			t.Fatal(err)
		}
		request = review.Request
		if len(c.Request) > 0 {
			merged, err := jsonpatch.MergePatch(request, c.Request)
			if err != nil {
				t.Fatalf("cannot merge request: %v", err)
			}
			request = merged
		}
	}
	var fields map[string]any
	if err := json.Unmarshal(request, &fields); err != nil {
		t.Fatalf("request: %v", err)
	}
	fields["uid"] = "00000000-0000-0000-0000-000000000000"
	body, err := json.Marshal(map[string]any{
		"kind": "AdmissionReview", "apiVersion": codec.APIVersionV1, "request": fields,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func writeFile(t *testing.T, file string, c Case) {
	content, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
