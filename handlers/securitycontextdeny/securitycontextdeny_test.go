package securitycontextdeny

import (
	"encoding/json"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// check checks the message of the denial of a new Pod with this spec, "" if it is allowed.
func check(t *testing.T, chain *admission.Chain, spec, want string) {
	t.Helper()
	body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{},"spec":`+spec+`}`)
	var got struct {
		Allowed bool
		Status  struct{ Message string }
	}
	if err := json.Unmarshal(admissiontest.Answer(t, chain, admission.Validate, body), &got); err != nil {
		t.Fatal(err)
	}
	if want != "" {
		want = "pods is forbidden: " + want + " is forbidden"
	}
	if got.Allowed != (want == "") || got.Status.Message != want {
		t.Errorf("%s: got allowed %v, message %q, want %q", spec, got.Allowed, got.Status.Message, want)
	}
}

func TestSecurityContexts(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	pod := func(securityContext, want string) {
		t.Helper()
		check(t, chain, `{"containers":[{}],"securityContext":`+securityContext+`}`, want)
	}
	container := func(securityContext, want string) {
		t.Helper()
		check(t, chain, `{"containers":[{"securityContext":`+securityContext+`}]}`, want)
		check(t, chain, `{"initContainers":[{"securityContext":`+securityContext+`}]}`, want)
		check(t, chain, `{"ephemeralContainers":[{"securityContext":`+securityContext+`}]}`, "")
	}

	// The in-tree plugin's own cases.
	pod(`null`, "")
	pod(`{}`, "")
	pod(`{"runAsUser":1}`, "pod.Spec.SecurityContext.RunAsUser")
	pod(`{"seLinuxOptions":{}}`, "pod.Spec.SecurityContext.SELinuxOptions")
	pod(`{"supplementalGroups":[1234]}`, "pod.Spec.SecurityContext.SupplementalGroups")
	pod(`{"fsGroup":1001}`, "pod.Spec.SecurityContext.FSGroup")
	container(`null`, "")
	container(`{}`, "")
	container(`{"privileged":true,"capabilities":{}}`, "")
	container(`{"runAsUser":1}`, "SecurityContext.RunAsUser")
	container(`{"seLinuxOptions":{}}`, "SecurityContext.SELinuxOptions")

	// Cases that its code implies: null is unset, everything else is set.
	pod(`{"runAsUser":0}`, "pod.Spec.SecurityContext.RunAsUser")
	pod(`{"fsGroup":0}`, "pod.Spec.SecurityContext.FSGroup")
	pod(`{"supplementalGroups":[]}`, "pod.Spec.SecurityContext.SupplementalGroups")
	pod(`{"supplementalGroups":null,"seLinuxOptions":null,"runAsUser":null,"fsGroup":null}`, "")
	pod(`{"runAsGroup":1,"runAsNonRoot":true,"seccompProfile":{},"sysctls":[],"fsGroupChangePolicy":"Always"}`, "")
	container(`{"runAsUser":0}`, "SecurityContext.RunAsUser")
	container(`{"seLinuxOptions":null,"runAsUser":null}`, "")

	// The message names the first one in its order.
	pod(`{"fsGroup":1,"runAsUser":1}`, "pod.Spec.SecurityContext.RunAsUser")
	pod(`{"runAsUser":1,"seLinuxOptions":{}}`, "pod.Spec.SecurityContext.SELinuxOptions")
	pod(`{"seLinuxOptions":{},"supplementalGroups":[1]}`, "pod.Spec.SecurityContext.SupplementalGroups")
	container(`{"runAsUser":1,"seLinuxOptions":{}}`, "SecurityContext.SELinuxOptions")

	// No API server sends these.
	pod(`[]`, "")
	pod(`"runAsUser"`, "")
	container(`[{"runAsUser":1}]`, "")
	check(t, chain, `null`, "")
	check(t, chain, `{"containers":null}`, "")
	check(t, chain, `{"containers":{"securityContext":{"runAsUser":1}}}`, "")
	check(t, chain, `{"containers":[null,1,"securityContext",[]]}`, "")
}

func TestNoAllocations(t *testing.T) {
	// This recording has security contexts in the pod, its containers and an init container.
	body := corpus.MustRead("pods-create-v1-1.json")
	admissiontest.NoAllocations(t, admissiontest.MustChain(t, Plugin(), ""), admission.Validate, admission.OutcomeAllowed, body)
}
