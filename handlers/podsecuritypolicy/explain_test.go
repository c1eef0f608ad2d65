package podsecuritypolicy

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestExplain explains what each policy says of a pod that is new, and of one that is about to be stored.
func TestExplain(t *testing.T) {
	readOnly := with(`"readOnlyRootFilesystem":true`)
	mayNot := func(s *authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Name != "others" }
	f := func(phase admission.Phase, spec string, want ...string) {
		t.Helper()
		chain := chainOf(t, mayNot, policy(t, "changes", readOnly, ""), policy(t, "changes-too", readOnly, ""),
			policy(t, "fits", with(`"hostNetwork":true`), ""), policy(t, "others", with(`"hostNetwork":true,"hostPID":true`), ""))
		var got []string
		chain.Explain = func(x *admission.Explanation) {
			for _, p := range x.Policies {
				got = append(got, fmt.Sprintf("%s: %t %s: %s", p.Policy, p.Asked, p.Outcome, p.Message))
				if compared := strings.HasPrefix(p.Why, "PodSecurityPolicies are compared"); compared != p.Asked {
					t.Errorf("%s: got %s", p.Policy, p.Why)
				}
			}
		}
		admissiontest.Answer(t, chain, phase, admissiontest.Body(codec.Create, pods, `{"spec":`+spec+`}`))
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	const (
		first   = "changes: true patched: used, unless a later policy allows the pod unchanged"
		second  = "changes-too: true allowed: with changes, as changes does, which is the first one"
		stored  = ": true denied: it allows the pod only with changes, and the pod is not changed any more"
		network = ": true denied: spec.securityContext.hostNetwork: Invalid value: true: Host network is not allowed to be used"
		process = ": true denied: spec.securityContext.hostPID: Invalid value: true: Host PID is not allowed to be used"
	)
	f(admission.Mutate, `{"containers":[{"name":"c"}]}`, first, second, "fits: true allowed: ", "others: false : ")
	f(admission.Validate, `{"containers":[{"name":"c"}]}`, "changes"+stored, "changes-too"+stored,
		"fits: true allowed: ", "others: false : ")
	f(admission.Validate, `{"hostNetwork":true,"containers":[{"name":"c"}]}`, "changes"+network, "changes-too"+network,
		"fits: true allowed: ", "others: false : ")
	f(admission.Validate, `{"hostPID":true,"containers":[{"name":"c"}]}`, "changes"+process, "changes-too"+process, "fits"+process,
		"others: true denied: neither the service account nor the user may use it")
}
