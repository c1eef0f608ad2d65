//go:build !race && !poison

package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const interpreterManifests = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: object.kind == 'Pod'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b.static.k8s.io}
spec: {policyName: p.static.k8s.io, validationActions: [Deny]}
`

const interpreterMutations = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p.static.k8s.io}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: none, expression: object.kind != 'Pod'}]
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'test', path: '/kind', value: 'Pod'}]"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b.static.k8s.io}
spec: {policyName: p.static.k8s.io}
`

const interpreterWebhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: c.static.k8s.io}
webhooks:
- name: w.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: none, expression: object.kind != 'Pod'}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

// TestDebugCELInterpreter evaluates the expressions of policies, webhooks and match
// conditions. By default closures do it, which allocate nothing themselves; with the flag the
// interpreter does it, which allocates 7 times for a small expression.
func TestDebugCELInterpreter(t *testing.T) {
	for _, test := range []struct{ plugin, kind, manifests, conditions string }{
		{plugin: "ValidatingAdmissionPolicy", kind: "ValidatingAdmissionPolicyConfiguration", manifests: interpreterManifests},
		{plugin: "MutatingAdmissionPolicy", kind: "MutatingAdmissionPolicyConfiguration", manifests: interpreterMutations},
		{plugin: "ValidatingAdmissionWebhook", kind: "WebhookAdmissionConfiguration", manifests: interpreterWebhooks},
		{plugin: "AlwaysDeny", conditions: ", matchConditions: [{name: none, expression: object.kind != 'Pod'}]"},
	} {
		var allocations [2]float64
		for i, flag := range []string{"", "--debug-cel-interpreter"} {
			chain := interpreterChain(t, test.plugin, test.kind, test.manifests, test.conditions, flag)
			body, phase := corpus.MustRead(servertest.PodCreate), admission.Validate
			if test.plugin == "MutatingAdmissionPolicy" {
				phase = admission.Mutate
			}
			admissiontest.CheckOutcome(t, chain, phase, admission.OutcomeAllowed, body)
			allocations[i] = testing.AllocsPerRun(100, func() {
				review := codec.Acquire()
				defer review.Release()
				if err := review.Decode(body); err != nil {
					t.Fatal(err)
				}
				if _, err := chain.Review(t.Context(), review, phase); err != nil {
					t.Fatal(err)
				}
			})
		}
		if allocations[1] < allocations[0]+5 {
			t.Errorf("%s: got %v allocations without and with the flag, want at least 5 more with it", test.plugin, allocations)
		}
	}
}

// interpreterChain returns the chain of one plugin, with a folder of manifests if there are
// any, or with conditions in fastadmit's configuration.
func interpreterChain(t *testing.T, plugin, kind, manifests, conditions, flag string) *admission.Chain {
	t.Helper()
	put := func(name, content string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	flags := []string{
		"--enable-admission-plugins=" + plugin, "--cluster-state-dir=" + filepath.Dir(put("cluster.yaml", string(corpus.Cluster))),
		"--config=" + put("config.json", configHead+"plugins: [{name: "+plugin+conditions+"}]\n"),
	}
	if flag != "" {
		flags = append(flags, flag)
	}
	if manifests != "" {
		static := filepath.Dir(put("manifests.yaml", manifests))
		flags = append(flags, "--admission-control-config-file="+put("admission.json", `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: `+plugin+`
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: `+kind+`, staticManifestsDir: `+static+`}
`))
	}
	s := &selection{options: &options{inTree: handlers.DefaultOptions()}}
	cmd := new(cobra.Command)
	s.addFlags(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	in, err := s.load(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return in.chain
}
