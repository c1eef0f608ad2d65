package contest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/bench/compare/policies"
	"github.com/fastadmit/fastadmit/bench/growth"
	"github.com/fastadmit/fastadmit/corpus"
)

// A Scenario is a review, and what contenders do with it.
type Scenario struct {
	Name string
	// About describes it in Markdown.
	About string
	// Serves is the contenders' name for what they do: validate, mutate, ten or policy.
	Serves string
	// By are the contenders that take part; all, if it is empty.
	By []string
	// Plugins and Path are fastadmit's plugins and the path of its endpoint.
	Plugins []string
	Path    string
	// Policies are fastadmit's policies, in YAML, and Cluster the objects of its cluster, that of the recordings if empty. If
	// APIServer is a URL, fastadmit reads both from there instead.
	Policies  []byte
	Cluster   string
	APIServer string
	// Review is the request, as kube-apiserver writes it.
	Review []byte
	// Patch is a JSON Patch (RFC 6902). The answer's patch must have the same result. If Denied is
	// set, the review must be denied.
	Patch  string
	Denied bool
}

// The plugins of the scenarios, in fastadmit's order.
var (
	validating = []string{"PrivilegedContainers"}
	mutating   = []string{"AlwaysPullImages"}
	ten        = []string{
		"NamespaceAutoProvision", "NamespaceLifecycle", "AlwaysPullImages", "LimitRanger", "ServiceAccount", "PodNodeSelector",
		"Priority", "DefaultTolerationSeconds", "PodTolerationRestriction", "RuntimeClass",
	}
)

// recorded is the recording of all scenarios: a Pod with three containers, three volumes, affinity,
// tolerations and managed fields.
const recorded = "pods-create-v1-1.json"

// updateBytes is the size of each of the two objects of the scenario "update".
const updateBytes = 1 << 20

const pullAlways = `{"op":"replace","path":"/spec/initContainers/0/imagePullPolicy","value":"Always"},
{"op":"replace","path":"/spec/containers/0/imagePullPolicy","value":"Always"},
{"op":"replace","path":"/spec/containers/1/imagePullPolicy","value":"Always"}`

// Scenarios returns all scenarios.
func Scenarios() ([]*Scenario, error) {
	pod := corpus.MustRead(recorded)
	update, err := largeUpdate(pod, updateBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot make the review of the update: %w", err)
	}
	return []*Scenario{
		{
			Name: "validate", About: "one plugin that validates: no privileged containers", Serves: "validate",
			Plugins: validating, Path: "/validate", Review: pod, Patch: "[]",
		}, {
			Name: "mutate", About: "AlwaysPullImages, with a patch of three operations", Serves: "mutate",
			Plugins: mutating, Path: "/mutate", Review: pod, Patch: "[" + pullAlways + "]",
		}, {
			Name: "ten", About: "ten plugins that mutate, eight of which look at the cluster, with a patch of six operations",
			Serves:  "ten",
			Plugins: ten, Path: "/mutate", Review: pod, Patch: "[" + pullAlways + `,
				{"op":"add","path":"/spec/nodeSelector","value":{"pool":"general"}},
				{"op":"add","path":"/spec/tolerations/-","value":{"key":"tenant","operator":"Equal","value":"shop","effect":"NoSchedule"}},
				{"op":"add","path":"/spec/tolerations/-","value":{"key":"node.kubernetes.io/memory-pressure","operator":"Exists",` +
				`"effect":"NoSchedule"}}]`,
		}, {
			Name: "update", About: "AlwaysPullImages on an UPDATE with a new image, two objects of 1 MiB", Serves: "mutate",
			Plugins: mutating, Path: "/mutate", Review: update, Patch: "[" + pullAlways + "]",
		}, {
			Name: "policy", About: "a ValidatingAdmissionPolicy of four expressions in CEL", Serves: "policy",
			By:      []string{Floor, Ours, "nethttp", "controllerruntime"},
			Plugins: []string{policyPlugin}, Path: "/validate", Review: pod, Patch: "[]", Policies: policies.Manifest,
		},
	}, nil
}

// policyPlugin is fastadmit's plugin for policies.
const policyPlugin = "ValidatingAdmissionPolicy"

// Growing returns the scenario of n policies, bindings or parameters of a work, in which fastadmit alone takes part. If
// they are not in files, API server is the URL of one that has them.
func Growing(w *growth.Work, n int, apiServer string) *Scenario {
	return &Scenario{
		Name: fmt.Sprintf("%s-%d", w.Name, n), About: w.About, Serves: "policy", By: []string{Ours}, Plugins: []string{policyPlugin},
		Path: "/validate", Review: corpus.MustRead(recorded), Patch: "[]", Policies: w.Manifest(n), Cluster: growth.Namespace("shop"),
		APIServer: apiServer,
	}
}

// isBy reports whether a contender takes part in the scenario.
func (s *Scenario) isBy(c Contender) bool { return len(s.By) == 0 || slices.Contains(s.By, c.Name) }

// largeUpdate makes an UPDATE of the Pod that a review creates, with a new image, and with so many
// environment variables that each of the two objects has the size.
func largeUpdate(review []byte, size int) ([]byte, error) {
	var r admissionv1.AdmissionReview
	var pod corev1.Pod
	if err := errors.Join(json.Unmarshal(review, &r), json.Unmarshal(r.Request.Object.Raw, &pod)); err != nil {
		return nil, err
	}
	pod.Name = "web-8d7c59b89-x2x7k"
	variable := func(i int) corev1.EnvVar {
		return corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%06d", i), Value: fmt.Sprintf("the value of variable %06d", i)}
	}
	one, err := json.Marshal(variable(0))
	if err != nil {
		return nil, err
	}
	environment := &pod.Spec.Containers[0].Env
	for i := range size / (len(one) + len(",")) {
		*environment = append(*environment, variable(i))
	}
	if r.Request.Object.Raw, err = json.Marshal(&pod); err != nil {
		return nil, err
	}
	pod.Spec.Containers[0].Image += "-before"
	if r.Request.OldObject.Raw, err = json.Marshal(&pod); err != nil {
		return nil, err
	}
	r.Request.Name, r.Request.Operation = pod.Name, admissionv1.Update
	r.Request.Options.Raw = []byte(strings.Replace(string(r.Request.Options.Raw), "CreateOptions", "UpdateOptions", 1))
	return json.Marshal(&r)
}

// Check sends the review of a scenario and returns the answer. It returns an error if the answer is
// wrong.
func (p *Process) Check(ctx context.Context, s *Scenario) ([]byte, error) {
	client := p.NewClient()
	defer client.CloseIdleConnections()
	return p.Ask(ctx, client, s)
}

// askMax bounds the wait for an answer. A process that is stepped through needs seconds for one, and
// a minute on a busy machine.
const askMax = 5 * time.Minute

// NewClient returns a client that trusts the process. It sends a request in one write, so that the
// process always reads it in the same way.
func (p *Process) NewClient() *http.Client {
	transport := &http.Transport{TLSClientConfig: p.Target.TLS.Clone(), WriteBufferSize: 1 << 20}
	transport.TLSClientConfig.DynamicRecordSizingDisabled = true
	return &http.Client{Transport: transport, Timeout: askMax}
}

// Ask is Check with a client from NewClient, which keeps its connection.
func (p *Process) Ask(ctx context.Context, client *http.Client, s *Scenario) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Target.URL+"?timeout=30s", bytes.NewReader(s.Review))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s cannot do %s: %w", p.Contender.Name, s.Name, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("got status %s", response.Status)
	}
	if err == nil {
		err = s.judge(answer)
	}
	if err != nil {
		return nil, fmt.Errorf("%s does %s wrong: %w; the answer is %.2000s", p.Contender.Name, s.Name, err, answer)
	}
	return answer, nil
}

// judge returns an error if an answer is wrong.
func (s *Scenario) judge(answer []byte) error {
	var sent, got admissionv1.AdmissionReview
	if err := errors.Join(json.Unmarshal(s.Review, &sent), json.Unmarshal(answer, &got)); err != nil {
		return err
	}
	switch r := got.Response; {
	case r == nil || got.Kind != sent.Kind || got.APIVersion != sent.APIVersion:
		return fmt.Errorf("got %s of %s, want %s of %s with a response", got.Kind, got.APIVersion, sent.Kind, sent.APIVersion)
	case r.UID != sent.Request.UID:
		return fmt.Errorf("got uid %q, want %q", r.UID, sent.Request.UID)
	case r.Allowed == s.Denied:
		return fmt.Errorf("got allowed %t, want %t", r.Allowed, !s.Denied)
	case s.Denied:
		return nil
	}
	gotObject, err := apply(sent.Request.Object.Raw, got.Response.Patch)
	if err != nil {
		return err
	}
	wantObject, err := apply(sent.Request.Object.Raw, []byte(s.Patch))
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(gotObject, wantObject) {
		return fmt.Errorf("got the patch %s, want one with the same result as %s", got.Response.Patch, s.Patch)
	}
	return nil
}

// apply applies a patch, which may be empty, to an object.
func apply(object, patch []byte) (patched any, err error) {
	if len(patch) > 0 {
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		if object, err = operations.Apply(object); err != nil {
			return nil, err
		}
	}
	return patched, json.Unmarshal(object, &patched)
}
