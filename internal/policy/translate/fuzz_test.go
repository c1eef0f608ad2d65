package translate_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// FuzzTranslate translates any documents of Kyverno and Gatekeeper, which strangers write, and reads the
// translation as policies.
func FuzzTranslate(f *testing.F) {
	f.Add(celPolicy("ValidatingPolicy", valid)+exception("  matchConditions: [{name: a, expression: 'a'}]\n"), false)
	f.Add(celPolicy("MutatingPolicy", noAuto+change), true)
	f.Add(template(source, "")+constraint("  match: {kinds: [{apiGroups: [''], kinds: [Pod]}], namespaces: ['a-*'], "+
		"scope: Namespaced}\n"), false)
	f.Add(clusterPolicy("ClusterPolicy", "  validationFailureAction: Enforce\n", classicMatch+classicCEL), true)
	f.Add(clusterPolicy("Policy", "", classicRule("{any: [{resources: {kinds: ['*/*'], names: ['a?'], "+
		"selector: {matchLabels: {'a*': b}}}, subjects: [{kind: User, name: u}]}]}")), true)
	f.Fuzz(func(_ *testing.T, documents string, cluster bool) {
		var texts [][]byte
		for _, document := range strings.Split(documents, "\n---\n") {
			if text, err := yaml.YAMLToJSON([]byte(document)); err == nil {
				texts = append(texts, text)
			}
		}
		for _, p := range translate.Translate(texts, translate.Options{Now: now, Cluster: cluster}).Policies {
			all, err := p.Objects()
			if err != nil {
				continue
			}
			for _, text := range all {
				read := []admission.File{{Name: p.Rule, Content: text, FromAPI: true}}
				_, _ = policy.ReadValidating(read)
				_, _ = policy.ReadMutating(read)
			}
		}
	})
}
