package policy

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestInvalid tests invalid policies in the cluster that were written while fastadmit did not
// run. Such a policy fails for the requests that its rules select. Without rules, it fails for
// no request, because it must not deny all of them.
func TestInvalid(t *testing.T) {
	const pods = `{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}`
	f := func(constraints, wantPods, wantServices string) {
		t.Helper()
		c := newReplicated(t)
		source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: c.view},
			func(*admissionregistrationv1.ValidatingAdmissionPolicy, bool) (string, error) { return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		c.put(binding("b", "p", 1), fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":"ValidatingAdmissionPolicy",`+
			`"metadata":{"name":"p"},"spec":{"failurePolicy":"Sometimes","matchConstraints":%s,"validations":[{"expression":"true"}]}}`,
			constraints))
		for resource, want := range map[string]string{"v1/pods": wantPods, "v1/services": wantServices} {
			var d Dispatch
			policies, result := source.Begin(t.Context(), &d,
				reviewOf(t, admissiontest.Body(codec.Create, resource, `{"metadata":{"name":"n"}}`)))
			if result.Denial != nil || result.Err != nil {
				t.Fatalf("%s: got %+v", constraints, result)
			}
			h := new(handled)
			if policies != nil {
				for _, p := range policies.Find(&d) {
					if ended := Evaluate(&p, &d, h); ended != nil {
						t.Errorf("%s, %s: got %+v", constraints, resource, ended)
					}
				}
			}
			if got := strings.Join(h.told, ", "); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s, %s: got %q, want %q", constraints, resource, got, want)
			}
		}
		if got := source.resources.compiled["p"].compiledCondition(); got.Status != "False" || got.Reason != "Invalid" {
			t.Errorf("%s: got condition %+v", constraints, got)
		}
	}
	const fails = "p none: failed to configure policy: "
	f(`{"resourceRules":[`+pods+`]}`, fails+`spec.failurePolicy: Unsupported value: "Sometimes"`, "")
	f(`{"resourceRules":[{}]}`, "", "")
	f(`{"resourceRules":[]}`, "", "")
	f(`{"excludeResourceRules":[`+pods+`]}`, "", "")
	f(`null`, "", "")
	f(`{"resourceRules":"none"}`, "", "") // cannot be decoded
}
