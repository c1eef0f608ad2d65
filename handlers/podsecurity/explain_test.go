package podsecurity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestExplain explains the standards, where they are from, and the exemptions.
func TestExplain(t *testing.T) {
	const config = `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",` +
		`"defaults":{"audit":"baseline"},"exemptions":{"usernames":["\u001bjane"],"namespaces":["exempt"],"runtimeClasses":["kata"]}}`
	namespace := "enforce restricted enforce-version v1.30"
	f := func(body []byte, why string, want ...string) {
		t.Helper()
		labels := strings.Fields(namespace)
		chain := admissiontest.MustChain(t, Plugin(), config, namespaceWith("namespace", labels...))
		var got []string
		chain.Explain = func(x *admission.Explanation) {
			if !strings.HasSuffix(x.Why, why) {
				t.Errorf("got %s, want %s", x.Why, why)
			}
			for _, s := range x.Standards {
				line := fmt.Sprintf("%s %s %s: %t %s%s %q", s.Mode, s.Standard, s.From, s.Asked, s.Why, s.Outcome, s.FailedChecks)
				got = append(got, line)
			}
		}
		admissiontest.Answer(t, chain, admission.Validate, body)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	const (
		exempts = `; exemptions.namespaces does not have namespace "namespace"; exemptions.usernames does not have user `
		nobody  = exempts + `""`
		of      = " of namespace namespace: level from "
		prefix  = "label pod-security.kubernetes.io/"
		latest  = "-version, which means v1.37: "
		host    = `["host namespaces (hostNetwork=true)"]`
		bad     = `{"spec":{"hostNetwork":true,"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}}}`
	)
	enforced := "enforce restricted:v1.30" + of + prefix + "enforce=restricted; version from " + prefix + "enforce-version=v1.30: "
	audited := "audit baseline:latest" + of + "defaults.audit; version from defaults.audit" + latest
	warned := "warn restricted:v1.30" + of + "enforce, which is stricter than defaults.warn; version from enforce: "
	pod := admissiontest.Body(codec.Create, "v1/pods", bad)
	f(pod, nobody, enforced+"true denied "+host, audited+"true audited "+host, warned+"false the pod is denied []")
	workload := admissiontest.Body(codec.Create, "apps/v1/deployments", `{"spec":{"template":`+bad+`}}`)
	f(workload, nobody, enforced+"false only its pods are checked []", audited+"true audited "+host, warned+"true warned "+host)
	update := admissiontest.UpdateBody("v1/pods", bad, bad)
	const unchanged = "false the update changes neither images nor the number of containers []"
	f(update, nobody, enforced+unchanged, audited+unchanged, warned+unchanged)
	kata := admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"runtimeClassName":"kata"}}`)
	const isKata = "false its RuntimeClass is exempt []"
	f(kata, nobody+`; exemptions.runtimeClasses has RuntimeClass "kata"`, enforced+isKata, audited+isKata, warned+isKata)
	jane := strings.Replace(string(pod), `"name":"name"`, `"userInfo":{"username":"\u001bjane"},"name":"name"`, 1)
	f([]byte(jane), `; exemptions.namespaces does not have namespace "namespace"; exemptions.usernames has user "\x1bjane"`)
	namespace = "enforce \x1b]0;x enforce-version latest warn privileged audit privileged"
	const everything = " of namespace namespace: level from label pod-security.kubernetes.io/%[1]s=privileged; " +
		"version from defaults.%[1]s-version, which means v1.37: true allowed []"
	f(pod, nobody, "enforce restricted:latest"+of+prefix+`enforce, whose value "\x1b]0;x" is invalid; version from `+prefix+
		"enforce-version=latest, which means v1.37: true denied "+host,
		"audit privileged:latest"+fmt.Sprintf(everything, "audit"), "warn privileged:latest of namespace namespace: level from "+prefix+
			"warn=privileged; version from defaults.warn"+latest+"false the pod is denied []")
}
