package intree

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	hookName = "pods.fastadmit.example.com"
	// probeLabel is on the probe. A further webhook of each mutating setting is called only for it,
	// so that the test sees when the setting is in use.
	probeLabel = "probe"
)

// A setting is a way to review Pods: by whom, and how they are registered.
type setting struct {
	name    string
	mutates bool
	denial  string           // of the Pod for which the policy does not hold; empty if it is not denied
	webhook *cluster.Process // nil for none
	hooks   []hook           // empty for policies in-tree
	probe   *hook            // of a setting that mutates
}

// A hook is a webhook.
type hook struct {
	url        string
	ca         []byte
	condition  string // one that must hold for a call; empty for none
	reinvoked  bool   // again if later webhooks change the Pod
	forLabeled bool   // called for the probe alone
}

// allSettings starts the programs and returns all settings.
func (s *stand) allSettings(t *testing.T) []setting {
	t.Helper()
	p := s.startPrograms(t)
	at := func(f *cluster.Fastadmit, path string) hook { return hook{url: f.URL + path, ca: p.authority.PEM} }
	probe := at(p.fastadmit, "/mutate/AlwaysPullImages")
	probe.forLabeled = true
	validating := func(name string, f *cluster.Fastadmit, hooks ...hook) setting {
		return setting{name: name, denial: "denied the request", webhook: f.Process, hooks: hooks}
	}
	mutating := func(name string, f *cluster.Fastadmit, hooks ...hook) setting {
		return setting{name: name, mutates: true, webhook: f.Process, hooks: hooks, probe: &probe}
	}
	one := at(p.fastadmit, "/validate/ValidatingAdmissionPolicy")
	pull, nothing := at(p.fastadmit, "/mutate/AlwaysPullImages"), at(p.fastadmit, "/mutate/DefaultTolerationSeconds")
	saved, again := pull, nothing
	saved.condition, again.reinvoked = `request.userInfo.username == "nobody"`, true
	annotated := func(f *cluster.Fastadmit) hook { return at(f, "/mutate/MutatingAdmissionPolicy") }
	return []setting{
		{name: "nothing"},
		{name: "validates: policy in-tree", denial: "ValidatingAdmissionPolicy 'pods.example.com'"},
		validating("validates: fastadmit", p.fastadmit, one),
		validating("validates: controller-runtime", p.validating, at(p.validating, "")),
		validating("validates: Gatekeeper", p.gatekeeper, at(p.gatekeeper, "/v1/admit")),
		{name: "mutates: policy in-tree", mutates: true},
		mutating("mutates: fastadmit", p.fastadmit, pull),
		mutating("mutates: controller-runtime", p.mutating, at(p.mutating, "")),
		mutating("mutates: Gatekeeper", p.gatekeeper, at(p.gatekeeper, "/v1/mutate")),
		validating("fastadmit, four webhooks that validate", p.fastadmit, one, one, one, one),
		validating("fastadmit, a warning for each Pod", p.second, at(p.second, "/validate/ValidatingAdmissionPolicy")),
		mutating("fastadmit, a call without a patch", p.fastadmit, nothing),
		mutating("fastadmit, a patch of one operation", p.fastadmit, annotated(p.fastadmit)),
		mutating("fastadmit, a patch of 20 operations", p.second, annotated(p.second)),
		mutating("fastadmit, a call that a match condition saves", p.fastadmit, saved),
		mutating("fastadmit, two webhooks, one patch", p.fastadmit, nothing, pull),
		mutating("fastadmit, the same, the first one called again", p.fastadmit, again, pull),
	}
}

// mutatingHooks returns the configuration of the setting's webhooks for new Pods.
func (s *setting) mutatingHooks() *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: hookName}}
	for i, h := range append(slices.Clone(s.hooks), *s.probe) {
		policy := admissionregistrationv1.NeverReinvocationPolicy
		if h.reinvoked {
			policy = admissionregistrationv1.IfNeededReinvocationPolicy
		}
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: fmt.Sprintf("w%d.%s", i, hookName), Rules: cluster.Rules("CREATE", "", "v1", "pods"), ReinvocationPolicy: &policy,
			ClientConfig: h.client(), MatchConditions: h.conditions(), ObjectSelector: h.selector(),
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
	}
	return c
}

// validatingHooks returns the configuration of the setting's webhooks for new Pods.
func (s *setting) validatingHooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: hookName}}
	for i, h := range s.hooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: fmt.Sprintf("w%d.%s", i, hookName), Rules: cluster.Rules("CREATE", "", "v1", "pods"), ClientConfig: h.client(),
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
	}
	return c
}

func (h *hook) client() admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: &h.url, CABundle: h.ca}
}

func (h *hook) conditions() []admissionregistrationv1.MatchCondition {
	if h.condition == "" {
		return nil
	}
	return []admissionregistrationv1.MatchCondition{{Name: "condition", Expression: h.condition}}
}

func (h *hook) selector() *metav1.LabelSelector {
	if !h.forLabeled {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{probeLabel: "true"}}
}

// annotations is a policy that adds annotations.
const annotations = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: annotations.static.k8s.io}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{annotations: {%s}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: annotations.static.k8s.io}
spec: {policyName: annotations.static.k8s.io}
`

// withAnnotations returns a policy that adds n annotations.
func withAnnotations(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`"example.com/a%d": "added"`, i)
	}
	return fmt.Sprintf(annotations, strings.Join(entries, ", "))
}

// warns is a policy that warns of each Pod.
const warns = `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: warns.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "false", message: this Pod is created without the labels that the next release will require}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: warns.static.k8s.io}
spec: {policyName: warns.static.k8s.io, validationActions: [Warn]}
`

// programs are the webhooks. The second fastadmit also warns, and adds 20 annotations instead of
// one.
type programs struct {
	fastadmit, second, validating, mutating, gatekeeper *cluster.Fastadmit
	authority                                           *cluster.Authority
}

// buildContenders builds contenders of make compare, and returns the folder in which they are.
func buildContenders(t *testing.T, names ...string) string {
	t.Helper()
	const module = "../../bench/compare"
	dir, err := filepath.Abs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-C", module, "-o", dir+"/")
	for _, name := range names {
		cmd.Args = append(cmd.Args, "./contenders/"+name)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the webhooks: %v\n%s", err, out)
	}
	return dir
}

// startPrograms starts them.
func (s *stand) startPrograms(t *testing.T) programs {
	t.Helper()
	dir := buildContenders(t, "fastadmit", "controllerruntime")
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Dir(cluster.WriteFile(t, "cluster.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")))
	authority := cluster.NewAuthority(t)
	cert, key := authority.Sign(t, cluster.Serving(time.Now().Add(24*time.Hour), "127.0.0.1"))
	files := []string{"--tls-cert-file=" + cluster.WriteFile(t, "tls.crt", cert),
		"--tls-private-key-file=" + cluster.WriteFile(t, "tls.key", key)}
	start := func(name string, arguments ...string) *cluster.Fastadmit {
		return cluster.RunFastadmit(t, slices.Concat([]string{filepath.Join(dir, name)}, arguments, files)...)
	}
	serve := func(validating, mutating string) *cluster.Fastadmit {
		config := cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %q}
- name: MutatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration, staticManifestsDir: %q}
`, filepath.Dir(cluster.WriteFile(t, "policy.yaml", []byte(validating))),
			filepath.Dir(cluster.WriteFile(t, "policy.yaml", []byte(mutating)))))
		return start("fastadmit", "serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
			"--enable-admission-plugins=AlwaysPullImages,DefaultTolerationSeconds,ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
			"--admission-control-config-file="+config, "--cluster-state-dir="+state)
	}
	gatekeeper := s.startGatekeeper(t, authority)
	s.constrain(t)
	return programs{
		fastadmit: serve(string(text), withAnnotations(1)), second: serve(string(text)+warns, withAnnotations(20)),
		validating: start("controllerruntime", "--scenario=policy"),
		mutating:   start("controllerruntime", "--scenario=mutate"),
		gatekeeper: gatekeeper,
		authority:  authority,
	}
}
