// Package handlertest tests plugins: with golden files, one for each case, and
// with every recorded review of a real kube-apiserver.
package handlertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

var update = flag.Bool("update", false, "write what the plugins answer into the golden files")

// Case is a golden file: testdata/<name>.yaml.
type Case struct {
	// About says what the case shows.
	About string `json:"about"`
	// Config is the plugin's configuration file.
	Config string `json:"config,omitempty"`
	// Error is part of the error with which the configuration is refused. There
	// is no request then.
	Error string `json:"error,omitempty"`
	// Phase is "mutate" or "validate".
	Phase string `json:"phase,omitempty"`
	// Recording names a review of the corpus to take the request from.
	Recording string `json:"recording,omitempty"`
	// Request is an admission.k8s.io/v1 AdmissionRequest; with a Recording, it
	// is a JSON merge patch (RFC 7386) for the recorded one.
	Request json.RawMessage `json:"request,omitempty"`
	// Response is the AdmissionResponse expected, less the uid, the patch
	// decoded.
	Response json.RawMessage `json:"response,omitempty"`
}

// Run runs every golden file in testdata against the plugin.
func Run(t *testing.T, plugin handlers.Plugin) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) { runFile(t, plugin, file) })
	}
}

func runFile(t *testing.T, plugin handlers.Plugin, file string) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c Case
	if err := yaml.UnmarshalStrict(content, &c); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if c.About == "" {
		t.Fatalf("%s: about: got nothing, want what the case shows", file)
	}
	chain, err := NewChain(plugin, c.Config)
	if c.Error != "" {
		if err == nil || !strings.Contains(err.Error(), c.Error) {
			t.Fatalf("configuration: got error %v, want one with %q", err, c.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got := Answer(t, chain, c.phase(t), c.body(t))
	if *update {
		c.Response = got
		writeFile(t, file, c)
		return
	}
	if !equalJSON(t, got, c.Response) {
		t.Errorf("%s\ngot response  %s\nwant response %s", c.About, got, c.Response)
	}
}

func (c *Case) phase(t *testing.T) handlers.Phase {
	switch c.Phase {
	case "mutate":
		return handlers.Mutate
	case "validate":
		return handlers.Validate
	}
	t.Fatalf("phase: got %q, want mutate or validate", c.Phase)
	return 0
}

// body returns the AdmissionReview of the case.
func (c *Case) body(t *testing.T) []byte {
	request := c.Request
	if c.Recording != "" {
		var review struct{ Request json.RawMessage }
		if err := json.Unmarshal(corpus.MustRead(c.Recording), &review); err != nil {
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

// NewChain returns a chain of one plugin with that configuration.
func NewChain(plugin handlers.Plugin, config string) (*handlers.Chain, error) {
	return handlers.NewChain([]handlers.Plugin{plugin},
		func(string) bool { return true },
		func(string) ([]byte, error) {
			if config == "" {
				return nil, nil
			}
			return []byte(config), nil
		})
}

// Answer returns the AdmissionResponse to a review, less the uid, the patch
// decoded.
func Answer(t testing.TB, chain *handlers.Chain, phase handlers.Phase, body []byte) json.RawMessage {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(context.Background(), review, phase, handlers.All); err != nil {
		t.Fatal(err)
	}
	var answer struct{ Response map[string]any }
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	delete(answer.Response, "uid")
	if patch, ok := answer.Response["patch"].(string); ok {
		decoded, err := base64.StdEncoding.DecodeString(patch)
		if err != nil {
			t.Fatal(err)
		}
		answer.Response["patch"] = json.RawMessage(decoded)
	}
	response, err := json.Marshal(answer.Response)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// Mutates runs a mutating plugin on every recorded review. It checks that the
// patch applies with kube-apiserver's own library and gives the object that
// the plugin made, that mutating the result again changes nothing, and that
// every operation touches one of the places: JSON Pointers, "*" for any token.
// It fails if the plugin changed nothing at all.
func Mutates(t *testing.T, plugin handlers.Plugin, config string, places ...string) {
	t.Helper()
	chain, err := NewChain(plugin, config)
	if err != nil {
		t.Fatal(err)
	}
	patched := 0
	for _, name := range corpus.Names() {
		if mutates(t, chain, name, places) {
			patched++
		}
	}
	if patched == 0 {
		t.Errorf("%s changed nothing in %d recordings", plugin.Name, len(corpus.Names()))
	}
}

func mutates(t *testing.T, chain *handlers.Chain, name string, places []string) bool {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(corpus.MustRead(name)); err != nil {
		t.Fatal(err)
	}
	original := []byte(review.Object.Root().JSON())
	if _, err := chain.Review(context.Background(), review, handlers.Mutate, handlers.All); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(review.Response.Patch) == 0 {
		return false
	}
	patch, err := jsonpatch.DecodePatch(review.Response.Patch)
	if err != nil {
		t.Fatalf("%s: %v in %s", name, err, review.Response.Patch)
	}
	applied, err := patch.Apply(original)
	if err != nil {
		t.Fatalf("%s: %v in %s", name, err, review.Response.Patch)
	}
	mutated := review.Object.Root().AppendJSON(nil)
	if !equalJSON(t, applied, mutated) {
		t.Errorf("%s: the patch gives %s, the plugin made %s", name, applied, mutated)
	}
	for _, operation := range patch {
		pointer, err := operation.Path()
		if err != nil || !isOneOf(pointer, places) {
			t.Errorf("%s: touched %q (%v), want one of %q", name, pointer, err, places)
		}
	}
	again := Answer(t, chain, handlers.Mutate, withObject(t, corpus.MustRead(name), mutated))
	if bytes.Contains(again, []byte(`"patch"`)) {
		t.Errorf("%s: mutating twice is not mutating once: %s", name, again)
	}
	return true
}

func isOneOf(pointer string, places []string) bool {
	for _, place := range places {
		if ok, err := path.Match(place, pointer); ok && err == nil {
			return true
		}
	}
	return false
}

// withObject returns the review with another object.
func withObject(t *testing.T, body, object []byte) []byte {
	var review map[string]any
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	review["request"].(map[string]any)["object"] = json.RawMessage(object)
	changed, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func equalJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return reflect.DeepEqual(x, y)
}
