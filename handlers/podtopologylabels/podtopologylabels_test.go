package podtopologylabels

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

const (
	zone   = "topology.kubernetes.io/zone"
	region = "topology.kubernetes.io/region"
)

func node(name string, labels ...string) runtime.Object {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: make(map[string]string)}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

func nodes() []runtime.Object {
	return []runtime.Object{
		node("n1", zone, "z2", region, "r", "topology.kubernetes.io/rack", "7", "sub."+zone, "s", "topology.kubernetes.io", "t"),
		node("zone", zone, "z"), node("empty", region, ""), node("bare"),
	}
}

func TestMutates(t *testing.T) {
	admissiontest.MutatesChain(t, admissiontest.MustChain(t, Plugin(), "", nodes()...), bound, "/metadata/labels",
		"/metadata/labels/topology.kubernetes.io~1*")
}

// bound sets a node in recorded pods.
func bound(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"schedulerName":`), []byte(`"nodeName":"n1","schedulerName":`))
}

func TestPods(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", nodes()...)
	f := func(object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, "v1/pods", object, want)
	}
	same := func(object string) { t.Helper(); f(object, object) }
	f(`{"spec":{"nodeName":"n1"}}`, `{"metadata":{"labels":{"`+zone+`":"z2","`+region+`":"r"}},"spec":{"nodeName":"n1"}}`)
	f(`{"metadata":{"labels":{"a":"b","`+zone+`":"old"}},"spec":{"nodeName":"n1"}}`,
		`{"metadata":{"labels":{"a":"b","`+zone+`":"z2","`+region+`":"r"}},"spec":{"nodeName":"n1"}}`)
	f(`{"metadata":{"labels":{"`+region+`":"old"}},"spec":{"nodeName":"zone"}}`,
		`{"metadata":{"labels":{"`+zone+`":"z","`+region+`":"old"}},"spec":{"nodeName":"zone"}}`)
	f(`{"metadata":{"labels":null},"spec":{"nodeName":"empty"}}`, `{"metadata":{"labels":{"`+region+`":""}},"spec":{"nodeName":"empty"}}`)
	for _, spec := range []string{`{"nodeName":"bare"}`, `{"nodeName":"none"}`, `{"nodeName":""}`, `{"nodeName":null}`,
		`{"nodeName":1}`, `{}`, `null`} {
		same(`{"spec":` + spec + `}`)
	}
	same(`{"target":{"kind":"Node","name":"n1"}}`) // not a binding
}

func TestBindings(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", nodes()...)
	f := func(operation codec.Operation, subresource, target string, want admission.Outcome) {
		t.Helper()
		body := admissiontest.Body(operation, "v1/pods", `{"metadata":{"name":"p"},"target":`+target+`,"spec":{"nodeName":"bare"}}`)
		body = bytes.Replace(body, []byte(`"name":"name"`), []byte(`"subResource":"`+subresource+`","name":"name"`), 1)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body)
	}
	const n1 = `{"kind":"Node","name":"n1"}`
	f(codec.Create, "binding", n1, admission.OutcomePatched)
	f(codec.Create, "binding", `{"kind":"Node","name":"n1","apiVersion":"example.com/v1","namespace":"x"}`, admission.OutcomePatched)
	f(codec.Create, "binding", `{"kind":"Node","name":"bare"}`, admission.OutcomeAllowed)
	f(codec.Create, "binding", `{"kind":"Machine","name":"n1"}`, admission.OutcomeAllowed)
	f(codec.Create, "binding", `{"name":"n1"}`, admission.OutcomeAllowed)
	f(codec.Create, "binding", `null`, admission.OutcomeAllowed)
	f(codec.Create, "eviction", n1, admission.OutcomeAllowed)
	f(codec.Update, "binding", n1, admission.OutcomeAllowed)
	f(codec.Update, "", `null`, admission.OutcomeAllowed)
}

// TestFailure has values that cannot be changed: the plugin fails, without panic or patch.
func TestFailure(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", nodes()...)
	for _, metadata := range []string{`1`, `{"labels":[]}`, `{"labels":"a"}`} {
		body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":`+metadata+`,"spec":{"nodeName":"n1"}}`)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, body)
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", nodes()...)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, corpus.MustRead("pods-binding-create-v1-1.json"))
}

func BenchmarkMutate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", nodes()...)
	f := func(name string, want admission.Outcome, recording string) {
		b.Run(name, func(b *testing.B) {
			admissiontest.Benchmark(b, chain, admission.Mutate, want, corpus.MustRead(recording))
		})
	}
	f("pod", admission.OutcomeAllowed, "pods-create-v1-1.json")
	f("binding", admission.OutcomePatched, "pods-binding-create-v1-1.json")
}

// TestVersions has a node with the labels of both keys. Kubernetes v1.33 copies other ones than
// later releases (plugin/pkg/admission/podtopologylabels/admission.go of v1.33.13 and v1.34.4).
func TestVersions(t *testing.T) {
	both := node("n", zone, "z", region, "r", "topology.k8s.io/zone", "old-z", "topology.k8s.io/region", "old-r")
	f := func(version, labels string) {
		t.Helper()
		chain := admissiontest.MustChain(t, admissiontest.Emulating(t, Plugin(), version), "", both)
		admissiontest.CheckAdmit(t, chain, "v1/pods", `{"spec":{"nodeName":"n"}}`,
			`{"metadata":{"labels":`+labels+`},"spec":{"nodeName":"n"}}`)
	}
	const now = `{"` + zone + `":"z","` + region + `":"r"}`
	f("1.33", `{"topology.k8s.io/zone":"old-z","topology.k8s.io/region":"old-r"}`)
	f("1.34", now)
	f("1.36", now)
}
