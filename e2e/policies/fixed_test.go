package policies

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
)

// everything matches all requests.
func everything() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
				Scope: new(admissionregistrationv1.AllScopes)},
		}}},
	}
}

// large returns a request with a custom resource that has lists and strings of this size.
func large(t testing.TB, size int) []byte {
	t.Helper()
	items := make([]string, size)
	for i := range items {
		items[i] = fmt.Sprint("item-", i)
	}
	const kind, resource = `{"group":"example.com","version":"v1","kind":"X"}`, `{"group":"example.com","version":"v1","resource":"xs"}`
	list, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":%s,"requestKind":%s,"resource":%s,
		"requestResource":%s,"name":"a","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice"},"oldObject":null,`+
			`"dryRun":false,
		"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"},"object":{"apiVersion":"example.com/v1","kind":"X",
		"metadata":{"name":"a","namespace":"shop"},"items":%s,"text":%q}}}`,
		kind, kind, resource, resource, list, strings.Repeat("a", size))
}

// single returns a policy with these expressions as validations, and a binding for everything.
func single(expressions ...string) *Documents {
	policy := admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	policy.Spec.MatchConstraints, policy.Spec.FailurePolicy = everything(), new(admissionregistrationv1.Fail)
	for _, e := range expressions {
		policy.Spec.Validations = append(policy.Spec.Validations, admissionregistrationv1.Validation{Expression: e})
	}
	binding := admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	binding.Spec.PolicyName = "p"
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny,
		admissionregistrationv1.Audit}
	return &Documents{
		Policies: []admissionregistrationv1.ValidatingAdmissionPolicy{policy},
		Bindings: []admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding},
	}
}

func check(t *testing.T, documents *Documents, body []byte) (denied bool) {
	t.Helper()
	upstream, err := NewUpstream(documents, readOnly{}, namespaces()...)
	if err != nil {
		t.Fatal(err)
	}
	denied, _ = compare(t, documents, upstream, ours(t, documents, admission.Newest()), body)
	return denied
}

// TestSelectors evaluates expressions with selectors.
func TestSelectors(t *testing.T) {
	for _, documents := range selecting() {
		check(t, documents, large(t, 1))
	}
}

// selecting returns policies that ask for permissions with selectors.
func selecting() (all []*Documents) {
	const pods = "authorizer.group('').resource('pods')"
	for _, selectors := range [...]string{
		".fieldSelector('spec.nodeName=n1')", ".labelSelector('app in (a, b),!c,d notin (e),f,g!=h')",
		".fieldSelector('a!=b,c==d').labelSelector('x==y')",
		`.fieldSelector('a=b\\,c\\=d')`, ".fieldSelector('a b c')", ".labelSelector('a b c')", ".labelSelector('n > 1')",
		".fieldSelector('').labelSelector('')",
	} {
		documents := single(pods + selectors + ".check('list').allowed()")
		documents.Policies[0].Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{
			{Key: "reason", ValueExpression: pods + selectors + ".check('list').reason()"},
		}
		all = append(all, documents)
	}
	return all
}
