package policy

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestWanted keeps the objects that bindings can name, and no others.
func TestWanted(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"is": "param"}}
	bindings := []*Binding{
		{}, // without a paramRef
		{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Name: "named"})},
		{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Name: "named"})},
		{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Namespace: "shop", Name: "own"})},
		{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Namespace: "shop", Selector: selector})},
		{paramRef: newParamRef(&admissionregistrationv1.ParamRef{})}, // the rest is invalid
		{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Name: "both", Selector: selector})},
		{paramRef: newParamRef(&admissionregistrationv1.ParamRef{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}},
		})},
	}
	w := make(wanted)
	w.add(bindings)
	if len(w) != 2*3 {
		t.Errorf("got %v, want three references, for a namespace and for any", w)
	}
	f := func(namespace, name, label string, kept, named bool) {
		t.Helper()
		object := &metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"is": label}}
		if got := w.keeps()(object); got != kept || w.names(namespace, name) != named {
			t.Errorf("%s/%s %s: got %v and %v by name, want %v and %v", namespace, name, label, got, w.names(namespace, name), kept, named)
		}
	}
	f("any", "named", "", true, true)
	f("any", "other", "param", false, false)
	f("shop", "own", "", true, true)
	f("any", "own", "", false, false)
	f("shop", "other", "param", true, false)
	f("shop", "other", "else", false, false)
	g := func(namespace, selector string, want bool) {
		t.Helper()
		s, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.selects(namespace, s); got != want {
			t.Errorf("%s %s: got %v", namespace, selector, got)
		}
	}
	g("shop", "is=param", true)
	g("any", "is=param", false)
	g("shop", "is=else", false)
	f("", "own", "", true, true) // without a namespace, it is of any
	f("", "other", "param", true, false)
	g("", "is=param", true)
	all := make(wanted)
	all.add([]*Binding{{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Selector: new(metav1.LabelSelector)})}})
	if !all.keeps()(new(metav1.ObjectMeta)) || !all.selects("any", labels.Everything()) || !all.names("any", "a") ||
		wanted(nil).keeps()(new(metav1.ObjectMeta)) {
		t.Error("an empty selector does not select everything, or no binding does")
	}
}

// BenchmarkWanted measures a kind that 10,000 bindings refer to, half of them by a selector: what
// a change of policies takes, and what each binding takes in a review.
func BenchmarkWanted(b *testing.B) {
	const n = 10_000
	var bindings []*Binding
	for i := range n / 2 {
		bindings = append(bindings,
			&Binding{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Namespace: "shop", Name: fmt.Sprint("p", i)})},
			&Binding{paramRef: newParamRef(&admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"is": fmt.Sprint("p", i)}}})})
	}
	w := make(wanted)
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			w = make(wanted)
			w.add(bindings)
		}
	})
	b.Run("names", func(b *testing.B) {
		for b.Loop() {
			if !w.names("shop", "p4999") {
				b.Fatal("it is not wanted")
			}
		}
	})
	b.Run("selects", func(b *testing.B) {
		selector := bindings[n-1].paramRef.selector
		for b.Loop() {
			if !w.selects("shop", selector) {
				b.Fatal("it is not wanted")
			}
		}
	})
}
