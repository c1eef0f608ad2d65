package podtopologylabels

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

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
	handlertest.MutatesChain(t, handlertest.MustChain(t, Plugin(), "", nodes()...), bound, "/metadata/labels", "/metadata/labels/topology.kubernetes.io~1*")
}

// bound binds recorded pods.
func bound(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"schedulerName":`), []byte(`"nodeName":"n1","schedulerName":`))
}

func TestPods(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", nodes()...)
	f := func(object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, "v1/pods", object, want)
	}
	same := func(object string) { t.Helper(); f(object, object) }
	f(`{"spec":{"nodeName":"n1"}}`, `{"metadata":{"labels":{"`+zone+`":"z2","`+region+`":"r"}},"spec":{"nodeName":"n1"}}`)
	f(`{"metadata":{"labels":{"a":"b","`+zone+`":"old"}},"spec":{"nodeName":"n1"}}`,
		`{"metadata":{"labels":{"a":"b","`+zone+`":"z2","`+region+`":"r"}},"spec":{"nodeName":"n1"}}`)
	f(`{"metadata":{"labels":{"`+region+`":"old"}},"spec":{"nodeName":"zone"}}`,
		`{"metadata":{"labels":{"`+zone+`":"z","`+region+`":"old"}},"spec":{"nodeName":"zone"}}`)
	f(`{"metadata":{"labels":null},"spec":{"nodeName":"empty"}}`, `{"metadata":{"labels":{"`+region+`":""}},"spec":{"nodeName":"empty"}}`)
	for _, spec := range []string{`{"nodeName":"bare"}`, `{"nodeName":"none"}`, `{"nodeName":""}`, `{"nodeName":null}`, `{"nodeName":1}`, `{}`, `null`} {
		same(`{"spec":` + spec + `}`)
	}
	same(`{"target":{"kind":"Node","name":"n1"}}`) // this is no binding
}

func TestBindings(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", nodes()...)
	f := func(operation codec.Operation, subresource, target string, want handlers.Outcome) {
		t.Helper()
		body := handlertest.Body(operation, "v1/pods", `{"metadata":{"name":"p"},"target":`+target+`,"spec":{"nodeName":"bare"}}`)
		body = bytes.Replace(body, []byte(`"name":"name"`), []byte(`"subResource":"`+subresource+`","name":"name"`), 1)
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, body)
	}
	const n1 = `{"kind":"Node","name":"n1"}`
	f(codec.Create, "binding", n1, handlers.OutcomePatched)
	f(codec.Create, "binding", `{"kind":"Node","name":"n1","apiVersion":"example.com/v1","namespace":"x"}`, handlers.OutcomePatched)
	f(codec.Create, "binding", `{"kind":"Node","name":"bare"}`, handlers.OutcomeAllowed)
	f(codec.Create, "binding", `{"kind":"Machine","name":"n1"}`, handlers.OutcomeAllowed)
	f(codec.Create, "binding", `{"name":"n1"}`, handlers.OutcomeAllowed)
	f(codec.Create, "binding", `null`, handlers.OutcomeAllowed)
	f(codec.Create, "eviction", n1, handlers.OutcomeAllowed)
	f(codec.Update, "binding", n1, handlers.OutcomeAllowed)
	f(codec.Update, "", `null`, handlers.OutcomeAllowed)
}

// What cannot be changed is the plugin's failure: no panic, no patch.
func TestFailure(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", nodes()...)
	for _, metadata := range []string{`1`, `{"labels":[]}`, `{"labels":"a"}`} {
		body := handlertest.Body(codec.Create, "v1/pods", `{"metadata":`+metadata+`,"spec":{"nodeName":"n1"}}`)
		handlertest.CheckOutcome(t, chain, handlers.Mutate, handlers.OutcomeErrored, body)
	}
}

func TestNoAllocations(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", nodes()...)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, corpus.MustRead("pods-binding-create-v1-1.json"))
}

func BenchmarkMutate(b *testing.B) {
	chain := handlertest.MustChain(b, Plugin(), "", nodes()...)
	f := func(name string, want handlers.Outcome, recording string) {
		b.Run(name, func(b *testing.B) { handlertest.Benchmark(b, chain, handlers.Mutate, want, corpus.MustRead(recording)) })
	}
	f("pod", handlers.OutcomeAllowed, "pods-create-v1-1.json")
	f("binding", handlers.OutcomePatched, "pods-binding-create-v1-1.json")
}
