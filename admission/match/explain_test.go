package match

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// environments has the labels of namespaces by name.
type environments map[string]labels.Set

// Labels implements Namespaces.
func (e environments) Labels(_ context.Context, name string) (labels.Set, error) {
	if set, ok := e[name]; ok {
		return set, nil
	}
	return nil, errors.New("cannot be read")
}

// TestExplain also requires that Explain reports what Matches does.
func TestExplain(t *testing.T) {
	known := environments{"namespace": {"env": "dev"}}
	f := func(known environments, c Criteria, resource, object, want string) {
		t.Helper()
		matcher, err := New(&c, nil)
		if err != nil {
			t.Fatal(err)
		}
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(admissiontest.UpdateBody(resource, object, `{"metadata":{"labels":{"old":"1"}}}`)); err != nil {
			t.Fatal(err)
		}
		a := admission.AttributesOf(review)
		wantMatches, err := matcher.Matches(t.Context(), review, &a, known)
		matches, why := matcher.Explain(t.Context(), review, &a, known)
		if matches != (wantMatches && err == nil) || why != want {
			t.Errorf("got %v, %q, want %v, %q", matches, why, wantMatches, want)
		}
	}
	selector := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	rule := func(resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"*"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}}}}
	}
	const pod = `{"metadata":{"labels":{"app":"web"}}}`
	f(known, Criteria{}, "v1/pods", pod, "")
	f(known, Criteria{Rules: rule("pods")}, "v1/pods", pod, "its rule * of v1 pods selects UPDATE of v1 pods")
	f(known, Criteria{Rules: rule("services"), ObjectSelector: selector("app", "Exists")}, "v1/pods", pod,
		"none of its rules selects UPDATE of v1 pods; they are: * of v1 services")
	f(known, Criteria{ObjectSelector: selector("app", "In", "web", "api")}, "v1/pods", pod,
		"objectSelector app in (api,web) matches: object has app=web, oldObject has no app")
	f(known, Criteria{ObjectSelector: selector("old", "Exists")}, "v1/pods", pod,
		"objectSelector old matches: object has no old, oldObject has old=1")
	f(known, Criteria{ObjectSelector: selector("tier", "Exists"), NamespaceSelector: selector("env", "Exists")}, "v1/pods", pod,
		"objectSelector tier does not match: object has no tier, oldObject has no tier")
	f(known, Criteria{NamespaceSelector: selector("env", "In", "prod")}, "v1/pods", pod,
		"namespaceSelector env in (prod) does not match: namespace namespace has env=dev")
	f(known, Criteria{ObjectSelector: selector("app", "Exists"), NamespaceSelector: selector("env", "Exists")}, "v1/pods", pod,
		"objectSelector app matches: object has app=web, oldObject has no app; "+
			"namespaceSelector env matches: namespace namespace has env=dev")
	f(nil, Criteria{NamespaceSelector: selector("env", "Exists")}, "v1/pods", pod,
		"namespaceSelector env cannot be evaluated: Internal error occurred: cannot be read")
	f(nil, Criteria{NamespaceSelector: selector("app", "Exists")}, "v1/namespaces", pod,
		"namespaceSelector app matches: namespace namespace has app=web")
	f(nil, Criteria{ObjectSelector: selector("app", "Exists")}, "v1/pods", "null",
		"objectSelector app does not match: oldObject has no app")
}
