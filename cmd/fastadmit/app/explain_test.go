package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
)

// A jsonSchema is a part of a JSON schema, with the keywords that docs/report.schema.json has.
type jsonSchema struct {
	Ref                  string                 `json:"$ref"`
	Type                 string                 `json:"type"`
	Const                any                    `json:"const"`
	Enum                 []any                  `json:"enum"`
	Items                *jsonSchema            `json:"items"`
	Properties           map[string]*jsonSchema `json:"properties"`
	Required             []string               `json:"required"`
	AdditionalProperties *bool                  `json:"additionalProperties"`
	Defs                 map[string]*jsonSchema `json:"$defs"`
}

// check returns what is wrong with a value.
func (s *jsonSchema) check(root *jsonSchema, at string, value any) (wrong []string) {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return root.Defs[name].check(root, at, value)
	}
	refuse := func(want any) { wrong = append(wrong, fmt.Sprintf("%s: got %v, want %v", at, value, want)) }
	if s.Const != nil && s.Const != value {
		refuse(s.Const)
	}
	if s.Enum != nil && !slices.Contains(s.Enum, value) {
		refuse(s.Enum)
	}
	switch value := value.(type) {
	case map[string]any:
		if s.Type != "object" {
			refuse(s.Type)
		}
		for _, name := range s.Required {
			if _, ok := value[name]; !ok {
				refuse("the field " + name)
			}
		}
		for name, member := range value {
			if below := s.Properties[name]; below != nil {
				wrong = append(wrong, below.check(root, at+"."+name, member)...)
			} else if s.AdditionalProperties != nil {
				refuse("no field " + name)
			}
		}
	case []any:
		if s.Type != "array" {
			refuse(s.Type)
			return wrong
		}
		for i, element := range value {
			wrong = append(wrong, s.Items.check(root, fmt.Sprintf("%s[%d]", at, i), element)...)
		}
	case string:
		if s.Type != "string" && s.Enum == nil && s.Const == nil {
			refuse(s.Type)
		}
	case float64:
		if s.Type != "integer" {
			refuse(s.Type)
		}
	case bool:
		if s.Type != "boolean" {
			refuse(s.Type)
		}
	default:
		refuse(s.Type)
	}
	return wrong
}

// checkReport requires that the output of -o json is as docs/report.schema.json says.
func checkReport(t *testing.T, output string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root jsonSchema
	var value any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(output), &value); err != nil {
		t.Fatalf("%v in %s", err, output)
	}
	for _, wrong := range root.check(&root, "", value) {
		t.Error(wrong)
	}
}

const explainedPolicies = "--policies=../../../docs/explain/policies.yaml"

func TestReviewExplain(t *testing.T) {
	want := []string{
		"    DefaultStorageClass: not asked: none of its rules selects CREATE of v1 pods; they are: CREATE of v1 persistentvolumeclaims\n",
		`      replace /spec/containers/0/imagePullPolicy: "IfNotPresent" => "Always"` + "\n",
		`              c.image => "docker.io/library/envoy:1.30"` + "\n", `, of: params.data.registry + '/'` + "\n",
		"namespaceSelector env=staging does not match: namespace shop has env=production\n",
		"matchConstraints: none of its rules selects CREATE of v1 pods web; they are: CREATE,UPDATE of v1 services\n",
	}
	args := []string{
		"review", "../../../docs/explain/pod.yaml", explainedPolicies,
		"--enable-admission-plugins=AlwaysPullImages,DefaultStorageClass", "--explain",
	}
	ran(t, "", 1, want, args...)
	plain := ran(t, "", 1, nil, args[:len(args)-1]...)
	explained := ran(t, "", 1, nil, args...)
	if first, _, _ := strings.Cut(plain, "\n"); !strings.HasPrefix(explained, first+"\n") {
		t.Errorf("got\n%swant the same decision as without --explain:\n%s", explained, first)
	}
	checkReport(t, ran(t, "", 1, []string{`"explanation": [`, `"depth": 1`}, append(args, "-o", "json")...))
	checkReport(t, ran(t, "", 1, nil, append(args[:len(args)-1], "-o", "json")...))
	ran(t, "", 1, []string{"explanation:"}, append(args, "-o", "yaml")...)
	checkReport(t, ran(t, "", 0, []string{`"webhooks": [`, `"standards": [`, `"failedChecks": [`},
		"review", "../../../docs/explain/debug.yaml", "--cluster-state-dir=../../../docs/explain/cluster",
		"--admission-control-config-file=../../../docs/explain/webhooks.yaml",
		"--enable-admission-plugins=PodSecurity,ValidatingAdmissionWebhook", "--allow-plugin-calls", "--explain", "-o", "json"))
	ran(t, "", 2, []string{"--explain: got -o diff, want one of text, json, yaml"}, append(args, "-o", "diff")...)
}

// TestReviewExplainConfiguration explains the rules, selectors and match conditions of a configuration.
func TestReviewExplainConfiguration(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	writeText(t, config, `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [AlwaysPullImages, AlwaysDeny, DefaultTolerationSeconds, DenyServiceExternalIPs]
plugins:
- name: AlwaysDeny
  namespaceSelector: {matchLabels: {env: production}}
- name: AlwaysPullImages
  objectSelector: {matchExpressions: [{key: app, operator: In, values: [web]}, {key: tier, operator: Exists}]}
- name: DefaultTolerationSeconds
  namespaceSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}
  matchConditions: [{name: not-web, expression: "object.metadata.labels['app'] != 'api'"}]
`)
	const objects = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: "web", namespace: shop, labels: {app: api}}
spec: {containers: [{name: c, image: i}]}
`
	const rule = "its rule CREATE,UPDATE of v1 pods selects CREATE of v1 pods; "
	ran(t, objects, 0, []string{
		"AlwaysDeny: not asked: its rule * of */* */* selects CREATE of v1 pods; " +
			"namespaceSelector env=production does not match: namespace shop has no env\n",
		"AlwaysPullImages: not asked: " + rule + "objectSelector app in (web),tier does not match: object has app=api, no tier\n",
		"DefaultTolerationSeconds: not asked: " + rule + "namespaceSelector !env matches: namespace shop has no env; " +
			"matchConditions[0] not-web is false: " +
			`object.metadata.labels['app'] != 'api'; object.metadata.labels["app"] => "api"` + "\n",
		"DenyServiceExternalIPs: not asked: none of its rules selects CREATE of v1 pods; they are: ",
	}, "review", "-", "--config="+config, "--explain")
}

// TestReviewExplainSecrets requires that the data of Secrets is not shown.
func TestReviewExplainSecrets(t *testing.T) {
	const objects = `apiVersion: v1
kind: Secret
metadata: {name: s, namespace: shop}
stringData: {password: hunter2}
data: {other: aHVudGVyMg==}
`
	policy := func(kind, spec string) string {
		return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: %[1]s
metadata: {name: %[2]s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]}
%[3]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sBinding
metadata: {name: %[2]s}
spec: {policyName: %[2]s%[4]s}
---
`, kind, strings.ToLower(kind), spec, map[bool]string{true: ", validationActions: [Deny]"}[kind[0] == 'V'])
	}
	file := filepath.Join(t.TempDir(), "policies.yaml")
	writeText(t, file, policy("MutatingAdmissionPolicy", `  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/data/other", value: "eHh4" + object.data.other}]'}`)+
		policy("ValidatingAdmissionPolicy", `  variables: [{name: other, expression: object.data.other}]
  validations: [{expression: "variables.other == 'x' && object.stringData.all(k, object.stringData[k] == 'x')"}]`))
	for _, format := range []string{"text", "json", "yaml"} {
		want := []string{"(hidden: it may be secret)", "variables.other"}
		stdout := ran(t, objects, 1, want, "review", "-", "--policies="+file, "--explain", "-o", format)
		stdout = strings.ReplaceAll(stdout, `\"eHh4\" + object.data.other`, "")
		if strings.Contains(stdout, "hunter2") || strings.Contains(stdout, "aHVudGVyMg") {
			t.Errorf("%s: got\n%swant no data of the Secret", format, stdout)
		}
	}
}

func TestReplayExplain(t *testing.T) {
	uid := func(name string) string {
		var review struct{ Request struct{ UID string } }
		if err := json.Unmarshal(corpus.MustRead(name), &review); err != nil {
			t.Fatal(err)
		}
		return review.Request.UID
	}
	dir, _ := recordTraffic(t, "AlwaysPullImages")
	pod := uid("pods-create-v1-1.json")
	both := []string{": Pod ", "  mutate:\n", "  validate:\n", "AlwaysPullImages: patched", "2 objects: 1 allowed (1 patched), 1 denied"}
	checkReport(t, replayed(t, "", 0, nil, dir, "--enable-admission-plugins=AlwaysPullImages", "--explain="+pod, "-o", "json"))
	replayed(t, "", 0, both, dir, "--enable-admission-plugins=AlwaysPullImages", "--explain="+pod) // one for each phase
	const deny = "--enable-admission-plugins=AlwaysDeny"
	replayed(t, "", 1, []string{"  recorded: allowed\n", "AlwaysDeny: denied\n"}, dir, deny, "--explain="+pod)
	secret := []string{"  note: secrets were left out when the review was recorded: request.object.data."}
	replayed(t, "", 0, secret, dir, "--enable-admission-plugins=AlwaysPullImages", "--explain="+uid("secrets-create-v1-1.json"))
	replayed(t, "", 2, []string{`no review in ` + dir + ` has the UID "nobody"`}, dir, deny, "--explain=nobody")
	replayed(t, "", 2, []string{"--explain: got -o junit, want one of text, json, yaml"}, dir, "--explain=x", "-o", "junit")
	replayed(t, "", 2, []string{"leave out --against-config"}, dir, "--explain=x", "--against-config=x.yaml")
	review := string(corpus.MustRead("pods-create-v1-1.json"))
	replayed(t, review, 0, []string{": denied by AlwaysDeny"}, "-", deny, "--explain="+pod) // without an answer
	broken := strings.Replace(review, `"object":{`, `"object":{"metadata":nothing,`, 1)
	replayed(t, broken, 2, []string{": broken: "}, "-", "--enable-admission-plugins=AlwaysPullImages", "--explain="+pod)
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
