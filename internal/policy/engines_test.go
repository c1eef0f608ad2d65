package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// An enginesAPI serves custom resources of other engines.
type enginesAPI struct {
	t *testing.T

	mu      sync.Mutex
	objects map[string]map[string]string // by resource and namespace/name
	watches map[string][]chan string     // by resource
	past    map[string][]change          // by resource
	events  map[string]corev1.Event      // by namespace/name
	version int
}

// A change is an event of a watch.
type change struct {
	version int
	event   string
}

func newEnginesAPI(t *testing.T) *enginesAPI {
	return &enginesAPI{t: t, objects: make(map[string]map[string]string), past: make(map[string][]change)}
}

// servedResources has the resources by group version, as name=kind.
var servedResources = map[string]string{
	"policies.kyverno.io/v1": "validatingpolicies=ValidatingPolicy namespacedvalidatingpolicies=NamespacedValidatingPolicy " +
		"mutatingpolicies=MutatingPolicy policyexceptions=PolicyException",
	"kyverno.io/v1":                     "clusterpolicies=ClusterPolicy",
	"templates.gatekeeper.sh/v1":        "constrainttemplates=ConstraintTemplate",
	"constraints.gatekeeper.sh/v1beta1": "k=K",
}

// decodeEvent reads an Event in protobuf, as clients of built-in kinds send it.
func decodeEvent(body io.Reader, event *corev1.Event) error {
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(bytes.TrimPrefix(content, []byte("k8s\x00"))); err != nil {
		return err
	}
	return event.Unmarshal(envelope.Raw)
}

func (a *enginesAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	fail := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
		var event corev1.Event
		if err := decodeEvent(r.Body, &event); err != nil {
			a.t.Error(err)
		}
		a.mu.Lock()
		_, exists := a.events[event.Namespace+"/"+event.Name]
		a.events[event.Namespace+"/"+event.Name] = event
		a.mu.Unlock()
		if exists {
			fail(http.StatusConflict, "AlreadyExists")
			return
		}
		_ = json.NewEncoder(w).Encode(&event)
	case r.URL.Path == "/api/v1/namespaces":
		a.list(w, r, "v1", "namespaces", "Namespace")
	case len(parts) == 2:
		for version := range servedResources {
			if group, v, _ := strings.Cut(version, "/"); group == parts[1] {
				fmt.Fprintf(w, `{"kind":"APIGroup","apiVersion":"v1","name":%q,"versions":[{"groupVersion":%q,"version":%q}]}`, group,
					version, v)
				return
			}
		}
		fail(http.StatusNotFound, "NotFound")
	case len(parts) == 3 && servedResources[parts[1]+"/"+parts[2]] != "":
		var all []string
		for _, resource := range strings.Fields(servedResources[parts[1]+"/"+parts[2]]) {
			name, kind, _ := strings.Cut(resource, "=")
			all = append(all, fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":%v,"verbs":["get","list","watch"]}`, name, kind,
				strings.HasPrefix(kind, "Namespaced") || kind == "PolicyException"))
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":[%s]}`, parts[1], parts[2],
			strings.Join(all, ","))
	case len(parts) == 4 && servedResources[parts[1]+"/"+parts[2]] != "":
		_, kind, _ := strings.Cut(servedResources[parts[1]+"/"+parts[2]], parts[3]+"=")
		kind, _, _ = strings.Cut(kind, " ")
		a.list(w, r, parts[1]+"/"+parts[2], parts[3], kind)
	default:
		fail(http.StatusNotFound, "NotFound")
	}
}

// list answers a list or a watch.
func (a *enginesAPI) list(w http.ResponseWriter, r *http.Request, version, resource, kind string) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		return
	}
	a.mu.Lock()
	if r.URL.Query().Get("watch") == "" {
		all := slices.Collect(maps.Values(a.objects[resource]))
		fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[%s]}`, kind, version, a.version,
			strings.Join(all, ","))
		a.mu.Unlock()
		return
	}
	// A change between the list and its watch must not be lost.
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	events := make(chan string, 100+len(a.past[resource]))
	for _, c := range a.past[resource] {
		if c.version > since {
			events <- c.event
		}
	}
	a.watches[resource] = append(a.watches[resource], events)
	a.mu.Unlock()
	w.(http.Flusher).Flush()
	for {
		select {
		case event := <-events:
			fmt.Fprintln(w, event)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// put writes an object, or deletes it.
func (a *enginesAPI) put(resource, namespace, name, object string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	key, event := namespace+"/"+name, "MODIFIED"
	switch before, exists := a.objects[resource][key]; {
	case object == "":
		event, object = "DELETED", before
		delete(a.objects[resource], key)
	case !exists:
		event = "ADDED"
	}
	object = strings.Replace(object, `"metadata":{}`, fmt.Sprintf(
		`"metadata":{"name":%q,"namespace":%q,"uid":%q,"generation":%d,"resourceVersion":"%d"}`,
		name, namespace, resource+key, a.version, a.version), 1)
	if a.objects[resource] == nil {
		a.objects[resource] = make(map[string]string)
	}
	if event != "DELETED" {
		a.objects[resource][key] = object
	}
	event = fmt.Sprintf(`{"type":%q,"object":%s}`, event, object)
	a.past[resource] = append(a.past[resource], change{a.version, event})
	for _, events := range a.watches[resource] {
		events <- event
	}
}

// engineConfig is the configuration of the tests. %s is more of it.
const engineConfig = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"ValidatingAdmissionPolicyConfiguration",` +
	`"read":["kyverno","gatekeeper"]%s}`

// start returns a Source that follows the objects, and its metrics.
func (a *enginesAPI) start(more string) (*validatingSource, *metrics.Set) {
	a.t.Helper()
	a.watches, a.events = make(map[string][]chan string), make(map[string]corev1.Event)
	kubeconfig := kubeconfigOf(a.t, a)
	own := []byte(fmt.Sprintf(engineConfig, more))
	needs := append(ValidatingKind.NeedsOf(own), cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create"))
	set := metrics.NewSet()
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig, Kinds: cluster.KindsOf(needs...), Metrics: set})
	if err == nil {
		err = state.Follow(a.t.Context(), needs...)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	s, err := NewSource(ValidatingKind, admission.Setup{Config: own, Cluster: state.View(needs...)}, compileNamed)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Handler().Run(ctx, func() {}) })
	a.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s, set
}

type validatingSource = Source[*admissionregistrationv1.ValidatingAdmissionPolicy,
	*admissionregistrationv1.ValidatingAdmissionPolicyBinding, string]

// compileNamed returns the first expression and the number of conditions. It fails for the expression "uncompiled".
func compileNamed(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ bool) (string, error) {
	if p.Spec.Validations[0].Expression == "uncompiled" {
		return "", errors.New("no such variable")
	}
	if n := len(p.Spec.MatchConditions); n > 0 {
		return fmt.Sprintf("%s if %d", p.Spec.Validations[0].Expression, n), nil
	}
	return p.Spec.Validations[0].Expression, nil
}

// evaluated notes the policies that are evaluated on a review, and those that are misconfigured.
type evaluated []string

func (e *evaluated) Evaluate(p *Policy[string], b *Binding, _ []*Param) *admission.Result {
	*e = append(*e, fmt.Sprintf("%s/%s %s %v", p.Name, b.Name, p.Evaluator, b.Actions))
	return nil
}

func (e *evaluated) Misconfigured(p *Policy[string], _ *Binding, err error) {
	*e = append(*e, p.Name+" "+err.Error())
}

func (e *evaluated) Ignored(*Policy[string], *Binding, error) {}

// onPod returns what is evaluated on a new Pod.
func onPod(t *testing.T, s *validatingSource) string {
	t.Helper()
	var all evaluated
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"name"}}`)); err != nil {
		t.Fatal(err)
	}
	var d Dispatch
	defer d.End()
	policies, result := s.Begin(t.Context(), &d, review)
	if result.Err != nil || result.Denial != nil {
		t.Fatalf("got %+v", result)
	}
	if policies == nil {
		return ""
	}
	for _, c := range policies.Find(&d) {
		Evaluate(&c, &d, &all)
	}
	return strings.Join(all, "\n")
}

// engineDocument returns a document for Pods.
func engineDocument(apiVersion, kind, spec string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{},"spec":{%s}}`, apiVersion, kind, spec)
}

const engineMatch = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],` +
	`"operations":["CREATE"],"resources":["pods"]}]},` +
	`"autogen":{"podControllers":{"controllers":[]}},`

func validatingPolicy(expression string) string {
	return engineDocument("policies.kyverno.io/v1", "ValidatingPolicy", engineMatch+fmt.Sprintf(`"validations":[{"expression":%q}]`,
		expression))
}

const asksServers = `http.Get('http://a').size() > 0`

// TestEngines evaluates policies of other engines and follows their changes.
func TestEngines(t *testing.T) {
	a := newEnginesAPI(t)
	a.put("namespaces", "", "namespace", `{"apiVersion":"v1","kind":"Namespace","metadata":{}}`)
	a.put("validatingpolicies", "", "p", validatingPolicy("a"))
	a.put("namespacedvalidatingpolicies", "shop", "p", strings.Replace(validatingPolicy("n"), `"kind":"V`, `"kind":"NamespacedV`, 1))
	a.put("mutatingpolicies", "", "m", engineDocument("policies.kyverno.io/v1", "MutatingPolicy",
		engineMatch+`"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"}}]`))
	a.put("clusterpolicies", "", "c", engineDocument("kyverno.io/v1", "ClusterPolicy",
		`"validationFailureAction":"Enforce","rules":[{"name":"r",`+
			`"match":{"any":[{"resources":{"kinds":["v1/Pod"]}}]},"validate":{"cel":{"expressions":[{"expression":"x"}]}}},`+
			`{"name":"s","match":{"any":[{"resources":{"kinds":["Pod"]}}]},"validate":{"pattern":{}}}]`))
	a.put("constrainttemplates", "", "k", engineDocument("templates.gatekeeper.sh/v1", "ConstraintTemplate",
		`"crd":{"spec":{"names":{"kind":"K"}}},"targets":[{"target":"admission.k8s.gatekeeper.sh","code":[{"engine":"K8sNativeValidation",`+
			`"source":{"validations":[{"expression":"g"}]}}]}]`))
	a.put("k", "", "one", engineDocument("constraints.gatekeeper.sh/v1beta1", "K", `"enforcementAction":"warn"`))
	s, set := a.start("")

	const others = "c.r/c.r x [Deny]\nk.one/k.one g [Warn]"
	eventually(t, func() string { return onPod(t, s) }, others+"\np/p a [Deny]")
	a.put("validatingpolicies", "", "p", validatingPolicy("b"))
	eventually(t, func() string { return onPod(t, s) }, others+"\np/p b [Deny]")

	a.put("validatingpolicies", "", "bad", validatingPolicy(asksServers))
	const noServers = "spec.validations[0].expression: the function http.Get of Kyverno has no translation: expressions of " +
		"Kubernetes ask no servers: put what the policy needs into parameters, or keep Kyverno for it"
	eventually(t, func() string { return onPod(t, s) }, "bad failed to configure policy: "+noServers+"\n"+others+"\np/p b [Deny]")
	a.put("validatingpolicies", "", "uncompiled", validatingPolicy("uncompiled"))
	eventually(t, a.said, "ClusterPolicy c: fastadmit: a part of it is not evaluated: spec.rules[1].validate.pattern: it has no "+
		"translation: "+
		"patterns have no translation; write the rule as validate.cel\n"+
		"ValidatingPolicy bad: fastadmit: it cannot be evaluated, so requests that it selects are denied, as its failure policy asks: "+
		""+noServers+"\n"+
		"ValidatingPolicy uncompiled: fastadmit: it cannot be evaluated, so requests that it selects are denied, as its failure "+
		"policy asks: "+
		"no such variable\n")
	var text strings.Builder
	if set.WritePrometheus(&text); !strings.Contains(text.String(),
		`fastadmit_policies_not_evaluated{plugin="ValidatingAdmissionPolicy"} 3`) ||
		!strings.Contains(text.String(), `fastadmit_policies{plugin="ValidatingAdmissionPolicy"} 8`) {
		t.Errorf("got %s", text.String())
	}
	for _, name := range []string{"bad", "p", "uncompiled"} {
		a.put("validatingpolicies", "", name, "")
	}
	a.put("k", "", "one", "")
	eventually(t, func() string { return onPod(t, s) }, "c.r/c.r x [Deny]")
}

// said returns the Events, sorted.
func (a *enginesAPI) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, e := range a.events {
		all = append(all, fmt.Sprintf("%s %s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
		if want := "default"; e.InvolvedObject.Namespace == "" && e.Namespace != want {
			a.t.Errorf("got an Event in %s, want %s", e.Namespace, want)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// TestEngineExceptions counts exceptions of one namespace, of all, or none.
func TestEngineExceptions(t *testing.T) {
	f := func(more, want, said string) {
		t.Helper()
		a := newEnginesAPI(t)
		a.put("namespaces", "", "namespace", `{"apiVersion":"v1","kind":"Namespace","metadata":{}}`)
		for _, name := range []string{"p", "q"} {
			a.put("validatingpolicies", "", name, validatingPolicy(name))
			a.put("policyexceptions", "of-"+name, "e"+name, engineDocument("policies.kyverno.io/v1", "PolicyException", fmt.Sprintf(
				`"policyRefs":[{"name":%q,"kind":"ValidatingPolicy"}],"matchConditions":[{"name":"c","expression":"true"}]`, name)))
		}
		s, _ := a.start(more)
		eventually(t, func() string { return onPod(t, s) }, want)
		eventually(t, a.said, said)
	}
	const said = "PolicyException %s: fastadmit: it is not evaluated: only exceptions in the namespace that exceptionsNamespace names " +
		"count, " +
		"because whoever may write one passes policies\n"
	f("", "p/p p [Deny]\nq/q q [Deny]", fmt.Sprintf(said, "ep")+fmt.Sprintf(said, "eq"))
	f(`,"exceptionsNamespace":"of-p"`, "p/p p if 1 [Deny]\nq/q q [Deny]", fmt.Sprintf(said, "eq"))
	f(`,"exceptionsNamespace":"*"`, "p/p p if 1 [Deny]\nq/q q if 1 [Deny]", "")
}

// TestEngineBounds translates what fits, and says what does not.
func TestEngineBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector, and runs one goroutine")
	}
	f := func(what string, namespaces, each, bytes, want, missing int) {
		t.Helper()
		a := newEnginesAPI(t)
		long := validatingPolicy(strings.Repeat("x", bytes))
		for i := range namespaces {
			for j := range each {
				a.put("namespacedvalidatingpolicies", fmt.Sprintf("n%03d", i), fmt.Sprintf("p%02d", j), strings.Replace(long,
					`"kind":"V`, `"kind":"NamespacedV`, 1))
			}
		}
		a.put("validatingpolicies", "", "of-the-cluster", validatingPolicy("c"))
		s, _ := a.start("")
		if err := s.follower.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, problems := s.foreign.documents()
		if len(all) != want || len(problems) != missing || all[0].object.GetName() != "of-the-cluster" {
			t.Errorf("%s: got %d documents, %d problems, first %s; want %d, %d", what, len(all), len(problems),
				all[0].object.GetName(), want, missing)
		}
	}
	f("most of a namespace", 1, namespaceDocumentsMax, 1, namespaceDocumentsMax+1, 0)
	f("more than a namespace may have", 2, namespaceDocumentsMax+1, 1, 2*namespaceDocumentsMax+1, 2)
	f("bytes of a namespace", 2, 2, namespaceDocumentBytesMax/2, 3, 2)
	f("bytes of all", documentsBytesMax/namespaceDocumentBytesMax+2, 1, namespaceDocumentBytesMax-1000, 65, 2)
}
