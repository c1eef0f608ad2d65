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
		{paramRef: &admissionregistrationv1.ParamRef{Name: "named"}},
		{paramRef: &admissionregistrationv1.ParamRef{Name: "named"}},
		{paramRef: &admissionregistrationv1.ParamRef{Namespace: "shop", Name: "own"}},
		{paramRef: &admissionregistrationv1.ParamRef{Namespace: "shop", Selector: selector}},
		{paramRef: &admissionregistrationv1.ParamRef{}}, // the rest is invalid
		{paramRef: &admissionregistrationv1.ParamRef{Name: "both", Selector: selector}},
		{paramRef: &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}}}},
	}
	w := wanted(nil).with(bindings)
	if got := fmt.Sprint(w); got != "[{ named } {shop  is=param} {shop own }]" {
		t.Errorf("got %s", got)
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
	all := wanted(nil).with([]*Binding{{paramRef: &admissionregistrationv1.ParamRef{Selector: new(metav1.LabelSelector)}}})
	if !all.keeps()(new(metav1.ObjectMeta)) || !all.selects("any", labels.Everything()) || wanted(nil).keeps()(new(metav1.ObjectMeta)) {
		t.Error("an empty selector does not select everything, or no binding does")
	}
}
