package mutatingadmissionpolicy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
)

// TestRules checks which operations are registered for a rule of all: policies do not match
// DELETE.
func TestRules(t *testing.T) {
	f := func(operations, want string) {
		t.Helper()
		state, err := cluster.New(cluster.Options{Embedded: true})
		plugin := Plugin()
		if err == nil {
			err = state.Follow(t.Context(), plugin.AllNeeds([]byte(config))...)
		}
		if err != nil {
			t.Fatal(err)
		}
		enabled := admission.Enabled{Config: []byte(config)}
		if operations != "" {
			enabled.Config = []byte(strings.Replace(config, `"customResources": true`, `"staticManifestsDir": "a"`, 1))
			text := strings.Replace(manifest("[]"), `["CREATE","UPDATE"]`, operations, 1)
			text = strings.Replace(text, `"mutations":[]`, `"mutations":`+mutationsOf(t, "ApplyConfiguration", "Object{}"), 1)
			enabled.Manifests = []admission.File{{Name: "policy.json", Content: []byte(text)}}
		}
		chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rule := range chain.RulesOf(plugin.Name) {
			got = append(got, fmt.Sprint(rule.Operations, rule.Resources))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: got %s, want %s", operations, got, want)
		}
	}
	f(`["*"]`, "[[CREATE UPDATE CONNECT] [*/*]]")
	f(`["UPDATE"]`, "[[UPDATE] [*/*]]")
	f(`["CONNECT","CREATE"]`, "[[CONNECT CREATE] [*/*]]")
	f("", "[[CREATE UPDATE CONNECT] [*/*]]") // custom resources are not listed yet
}

const config = `{"apiVersion": "fastadmit.io/v1alpha1", "kind": "MutatingAdmissionPolicyConfiguration", "customResources": true}`
