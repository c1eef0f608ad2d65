package securitycontextdeny

import (
	"encoding/json"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

// check checks the message that a new Pod with that spec is denied with, "" if
// it is allowed.
func check(t *testing.T, chain *handlers.Chain, spec, want string) {
	t.Helper()
	body := handlertest.Body(codec.Create, "v1/pods", `{"metadata":{},"spec":`+spec+`}`)
	var got struct {
		Allowed bool
		Status  struct{ Message string }
	}
	if err := json.Unmarshal(handlertest.Answer(t, chain, handlers.Validate, body), &got); err != nil {
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
	chain := handlertest.MustChain(t, Plugin(), "")
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

	// What follows from its code: nil is unset, everything else is set.
	pod(`{"runAsUser":0}`, "pod.Spec.SecurityContext.RunAsUser")
	pod(`{"fsGroup":0}`, "pod.Spec.SecurityContext.FSGroup")
	pod(`{"supplementalGroups":[]}`, "pod.Spec.SecurityContext.SupplementalGroups")
	pod(`{"supplementalGroups":null,"seLinuxOptions":null,"runAsUser":null,"fsGroup":null}`, "")
	pod(`{"runAsGroup":1,"runAsNonRoot":true,"seccompProfile":{},"sysctls":[],"fsGroupChangePolicy":"Always"}`, "")
	container(`{"runAsUser":0}`, "SecurityContext.RunAsUser")
	container(`{"seLinuxOptions":null,"runAsUser":null}`, "")

	// The first one in its order is named.
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
	// This one has security contexts in the pod, its containers and an init
	// container.
	body := corpus.MustRead("pods-create-v1-1.json")
	handlertest.NoAllocations(t, handlertest.MustChain(t, Plugin(), ""), handlers.Validate, handlers.OutcomeAllowed, body)
}
