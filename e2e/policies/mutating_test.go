package policies

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionpolicy"
)

// mutated evaluates policies with fastadmit's plugin, and returns the object too.
func mutated(t testing.TB, chain *handlers.Chain, body, object []byte) (*Answer, []byte) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(t.Context(), review, handlers.Mutate); err != nil {
		t.Fatal(err)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	a := &Answer{Annotations: map[string]string{}}
	if r := answer.Response; !r.Allowed {
		a.Denied = r.Result
		a.Denied.Message = strings.TrimPrefix(a.Denied.Message, "MutatingAdmissionPolicy: ")
		causes := &a.Denied.Details.Causes
		*causes = slices.DeleteFunc(*causes, func(c metav1.StatusCause) bool { return c.Type == handlers.CauseAdmissionPlugin })
	} else if len(r.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(r.Patch)
		if err == nil {
			object, err = patch.Apply(object)
		}
		if err != nil {
			t.Fatalf("the patch does not apply: %v\n%s", err, r.Patch)
		}
	}
	return a, object
}

var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// canonical returns an object as its Go type has it, or why it is none.
func canonical(object []byte) ([]byte, error) {
	decoded, _, err := strict.Decode(object, nil, nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(decoded)
}

// mutation returns a mutation of the fields of an object.
func (g *generator) mutation(anywhere bool) admissionregistrationv1.Mutation {
	if g.IntN(2) == 0 {
		return admissionregistrationv1.Mutation{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: g.applyConfiguration()},
		}
	}
	var operations []string
	for range 1 + g.IntN(3) {
		operations = append(operations, g.operation(anywhere))
	}
	expression := "[" + strings.Join(operations, ", ") + "]"
	if g.IntN(4) == 0 {
		expression = g.bool() + " ? " + expression + " : []"
	}
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
	}
}

// pointer returns a JSON Pointer to a field.
func (g *generator) pointer() string {
	p := g.paths[g.IntN(len(g.paths))]
	for !strings.HasPrefix(p, "object[") || p == `object["kind"]` || p == `object["apiVersion"]` {
		p = g.paths[g.IntN(len(g.paths))]
	}
	var pointer strings.Builder
	for token := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(p, "object["), "]"), "][") {
		if unquoted, err := strconv.Unquote(token); err == nil {
			token = unquoted
		}
		pointer.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return pointer.String()
}

// operation returns an operation of a JSON Patch. Those at places that are not known
// may make an object that its Go type has otherwise, or not at all.
func (g *generator) operation(anywhere bool) string {
	p, q, v := strconv.Quote(g.pointer()), strconv.Quote(g.pointer()), g.path()
	all := [...]string{
		"JSONPatch{op: 'remove', path: " + p + "}",
		"JSONPatch{op: 'replace', path: " + p + ", value: " + v + "}",
		"JSONPatch{op: 'add', path: " + p + ", value: " + v + "}",
		"JSONPatch{op: 'copy', from: " + p + ", path: " + q + "}",
		"JSONPatch{op: 'move', from: " + p + ", path: " + q + "}",
		"JSONPatch{op: 'replace', path: " + p + "}",
		"JSONPatch{op: 'add', path: '/nope', value: 1}",
		"JSONPatch{op: 'test', path: " + p + ", value: " + v + "}",
		"JSONPatch{op: 'test', path: '/metadata/name', value: object.metadata.name}",
		"JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: " + g.text() + "}",
		"JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': " + g.text() + "}}",
		"JSONPatch{op: 'add', path: '/metadata/labels', value: Object.metadata.labels{a: 'b'}}",
		"JSONPatch{op: 'nope', path: " + p + "}",
		"JSONPatch{op: 'add', path: '/metadata/finalizers', value: ['example.com/a']}",
		"JSONPatch{op: 'add', path: '/metadata/finalizers/-', value: 'example.com/b'}",
		"JSONPatch{op: 'add', path: '/metadata/finalizers/0', value: 'example.com/c'}",
		"JSONPatch{op: 'copy', from: '/metadata/finalizers/0', path: '/metadata/labels/d'}",
	}
	if !anywhere {
		return all[7+g.IntN(len(all)-7)]
	}
	return all[g.IntN(len(all))]
}

func (g *generator) applyConfiguration() string {
	return [...]string{
		"Object{metadata: Object.metadata{labels: {'a': " + g.text() + "}}}",
		"Object{metadata: Object.metadata{annotations: Object.metadata.annotations{a: 'x'}, finalizers: ['example.com/a']}}",
		"Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}",
		"Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'proxy', image: 'proxy', restartPolicy: 'Always'}]}}",
		"Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'a': 'b'}}}}}",
		"Object{spec: Object.spec{replicas: 3}}",
		"Object{spec: Object.spec{replicas: " + g.path() + "}}",
		"Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}",
		"Object{spec: Object.spec{containers: [Object.spec.containers{name: 'x', args: ['a']}]}}",
		"Object{spec: Object.spec{containers: [Object.spec.containers{name: 'x', ports: [Object.spec.containers.ports{containerPort: 80, protocol: 'TCP'}]," +
			" env: [Object.spec.containers.env{name: 'A', value: 'b'}]}]}}",
		"Object{spec: Object.spec{nope: 1}}",
		"Object{spec: Object.metadata{name: 'x'}}",
		"Object{data: Object.data{a: 'YQ=='}}", // which a Secret takes, too
		"Object{data: {'a': 'Yg=='}}",
		"Object{}",
		"Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: '1', name: 'a', kind: 'b', apiVersion: 'v1'}]}}",
		"Object{kind: 'Other', apiVersion: 'v7'}",
	}[g.IntN(17)]
}

func (g *generator) mutating(name string, anywhere bool) admissionregistrationv1.MutatingAdmissionPolicy {
	from := g.policy(name)
	p := admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	spec := &p.Spec
	spec.MatchConstraints = resources(admissionregistrationv1.Create, admissionregistrationv1.Update)
	spec.FailurePolicy, spec.Variables, spec.MatchConditions = from.Spec.FailurePolicy, from.Spec.Variables, from.Spec.MatchConditions
	spec.ReinvocationPolicy = [...]admissionregistrationv1.ReinvocationPolicyType{
		admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy,
	}[g.IntN(2)]
	if anywhere {
		spec.ReinvocationPolicy, spec.Mutations = admissionregistrationv1.NeverReinvocationPolicy, []admissionregistrationv1.Mutation{g.mutation(true)}
		return p
	}
	for range 1 + g.IntN(3) {
		spec.Mutations = append(spec.Mutations, g.mutation(false))
	}
	return p
}

// answersDiffer reports whether upstream's packages answer the same request differently
// when they are asked again, so that nothing can be compared with them.
func answersDiffer(t *testing.T, documents *MutatingDocuments, review *admissionv1.AdmissionReview, first *Answer) bool {
	t.Helper()
	for range 10 {
		upstream, err := NewUpstreamMutating(documents, readOnly{}, namespaces()...)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := upstream.Answer(review.Request)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, first) {
			return true
		}
	}
	return false
}

// TestGeneratedMutating has both sides evaluate generated MutatingAdmissionPolicies on
// every recording of an object that is created or updated. What kube-apiserver refuses
// to decode after a mutation must be what it refuses to decode of fastadmit's answer.
func TestGeneratedMutating(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	row := tally.Row{Plugin: "MutatingAdmissionPolicy", Test: "generated in process", Seed: seed}
	denied, changed := 0, 0
	for i, name := range corpus.Names() {
		body := corpus.MustRead(name)
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Fatal(err)
		}
		before, err := canonical(review.Request.Object.Raw)
		if op := review.Request.Operation; err != nil || op != admissionv1.Create && op != admissionv1.Update {
			continue // of a custom resource, or without an object
		}
		for n := range uint64(2) {
			g := &generator{Rand: rand.New(rand.NewPCG(seed+n, uint64(i)))}
			var object any
			if err := json.Unmarshal(review.Request.Object.Raw, &object); err != nil {
				t.Fatal(err)
			}
			g.collect("object", object)
			documents := g.mutatingDocuments()
			upstream, err := NewUpstreamMutating(documents, readOnly{}, namespaces()...)
			if err != nil {
				t.Fatal(err)
			}
			want, wantObject, err := upstream.Answer(review.Request)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want.Denied != nil && want.Denied.Reason == metav1.StatusReasonServiceUnavailable {
				continue // client-go has no schema of it: Scale, Binding and TokenRequest
			}
			got, gotObject := mutated(t, oursMutating(t, documents), body, review.Request.Object.Raw)
			row.Cases++
			difference := compareMutated(got, want, gotObject, wantObject)
			if difference != "" && answersDiffer(t, documents, &review, want) {
				row.Skipped = append(row.Skipped, fmt.Sprintf("%s: upstream answers differently each time (seed %d)", name, seed))
				continue
			}
			if difference != "" {
				text, _ := yaml.Marshal(documents)
				t.Errorf("%s\n%s\n%s", name, text, difference)
				row.Different = append(row.Different, name)
			}
			if want.Denied != nil {
				denied++
			} else if string(wantObject) != string(before) {
				changed++
			}
		}
	}
	if t.Logf("%d cases, %d denied, %d changed", row.Cases, denied, changed); denied*20 < row.Cases || changed*20 < row.Cases {
		t.Errorf("got %d of %d denied and %d changed, want some of each", denied, row.Cases, changed)
	}
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}

func (g *generator) mutatingDocuments() *MutatingDocuments {
	documents := new(MutatingDocuments)
	policies, bindings, anywhere := 1+g.IntN(3), 1+g.IntN(2), g.IntN(3) == 0
	if anywhere { // one mutation: kube-apiserver shows the next one what the Go type has
		policies, bindings = 1, 1
	}
	for p := range policies {
		policy := fmt.Sprint("p", p)
		documents.Policies = append(documents.Policies, g.mutating(policy, anywhere))
		for b := range bindings {
			binding := g.binding(fmt.Sprintf("b%d-%d", p, b), policy)
			documents.Bindings = append(documents.Bindings, admissionregistrationv1.MutatingAdmissionPolicyBinding{
				ObjectMeta: binding.ObjectMeta,
				Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy, MatchResources: binding.Spec.MatchResources},
			})
		}
	}
	return documents
}

// compareMutated says what differs.
func compareMutated(got, want *Answer, gotObject, wantObject []byte) string {
	if want.Denied != nil {
		want.Denied.Status = metav1.StatusFailure
		if want.Denied.Reason == metav1.StatusReasonInternalError { // it cannot decode the object
			if _, err := canonical(gotObject); got.Denied == nil && err == nil {
				return fmt.Sprintf("got %s, want an object that cannot be decoded: %s", gotObject, want.Denied.Message)
			}
			return ""
		}
	}
	if normal(got) != normal(want) {
		return fmt.Sprintf("got  %s\nwant %s", normal(got), normal(want))
	}
	if want.Denied != nil {
		return ""
	}
	canonicalObject, err := canonical(gotObject)
	if err != nil || string(canonicalObject) != string(wantObject) {
		return fmt.Sprintf("got object  %s (%v)\nwant object %s", canonicalObject, err, wantObject)
	}
	return ""
}

func oursMutating(t testing.TB, documents *MutatingDocuments) *handlers.Chain {
	t.Helper()
	var manifests []handlers.File
	for i := range documents.Policies {
		manifests = append(manifests, fileOf(t, "MutatingAdmissionPolicy", documents.Policies[i].Name, documents.Policies[i]))
	}
	for i := range documents.Bindings {
		manifests = append(manifests, fileOf(t, "MutatingAdmissionPolicyBinding", documents.Bindings[i].Name, documents.Bindings[i]))
	}
	return chainOf(t, mutatingadmissionpolicy.Plugin(), manifests)
}
