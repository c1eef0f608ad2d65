package webhook_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/webhook"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
)

const ownConfig = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration"}`

// wantError compares an error, "" for none.
func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		_, got, _ = strings.Cut(err.Error(), "AdmissionWebhook: ")
	}
	if got != want && (want == "" || !strings.HasSuffix(got, want)) {
		t.Errorf("%s: got  %s\nwant %s", what, got, want)
	}
}

// tryConfig enables a plugin with a configuration.
func tryConfig(t *testing.T, plugin admission.Plugin, config string, manifests ...admission.File) error {
	t.Helper()
	_, err := tryChain(t, cluster.Options{}, &plugin, admission.Enabled{Config: []byte(config), Manifests: manifests})
	return err
}

// TestConfig has valid and invalid configuration files.
func TestConfig(t *testing.T) {
	f := func(version, more, want string) {
		t.Helper()
		config := fmt.Sprintf(`{"apiVersion":%q,"kind":"WebhookAdmissionConfiguration"%s}`, version, more)
		wantError(t, config, tryConfig(t, validatingadmissionwebhook.Plugin(), config), want)
	}
	const upstream, own = "apiserver.config.k8s.io/v1", "fastadmit.io/v1alpha1"
	f(upstream, "", "")
	f(own, "", "")
	f("apiserver.config.k8s.io/v2", "", `apiVersion: Unsupported value: "apiserver.config.k8s.io/v2": supported values: `+
		`"apiserver.config.k8s.io/v1"`)
	f(upstream, `,"kubeConfigFile":"/a"`, "")
	f(upstream, `,"kubeConfigFile":"a"`, `kubeConfigFile: Invalid value: "a": must be an absolute file path`)
	f(own, `,"customResources":true,"auditPatches":true,"circuit":{"failures":1,"pause":"1ms"}`, "")
	f(upstream, `,"customResources":false,"auditPatches":false`, "")
	f(upstream, `,"customResources":true`, "customResources: Forbidden: wants apiVersion fastadmit.io/v1alpha1")
	f(upstream, `,"auditPatches":true`, "auditPatches: Forbidden: wants apiVersion fastadmit.io/v1alpha1")
	f(upstream, `,"circuit":{"failures":1,"pause":"1ms"}`, "circuit: Forbidden: wants apiVersion fastadmit.io/v1alpha1")
	f(own, `,"circuit":{"failures":0,"pause":"1ms"}`, "circuit.failures: Invalid value: 0: must be positive")
	f(own, `,"circuit":{"failures":1,"pause":"999us"}`, `circuit.pause: Invalid value: "999µs": must be from 1ms to 10m0s`)
	f(own, `,"circuit":{"failures":1,"pause":"10m"}`, "")
	f(own, `,"circuit":{"failures":1,"pause":"10m1ns"}`, `circuit.pause: Invalid value: "10m0.000000001s": must be from 1ms to 10m0s`)
}

// TestNeeds checks that a configuration needs no more permissions than its fields require.
func TestNeeds(t *testing.T) {
	services := cluster.Services.Called("get")
	f := func(config string, want ...cluster.Need) {
		t.Helper()
		if got := webhook.ValidatingKind.NeedsOf([]byte(config)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", config, got, want)
		}
	}
	f("")
	f("{")
	f(upstreamConfig)
	f(ownConfig, services)
	f(followConfig, services, cluster.ValidatingWebhookConfigurations.Watched(),
		cluster.ValidatingWebhookConfigurations.CalledStatus("update").InBackground())
}

// configured returns a configuration with one webhook with these fields and the required
// ones. The value null leaves a field out.
func configured(t *testing.T, kind, fields string) []byte {
	t.Helper()
	has, given := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	if err := json.Unmarshal([]byte(`{"name":"a.example.com","clientConfig":{"url":"https://a.example.com/"},"sideEffects":"None",`+
		`"admissionReviewVersions":["v1"],`+
		`"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}`), &has); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte("{"+fields+"}"), &given); err != nil {
		t.Fatal(fields, err)
	}
	maps.Copy(has, given)
	maps.DeleteFunc(has, func(_ string, v json.RawMessage) bool { return string(v) == "null" })
	text, err := json.Marshal(has)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":"c"},"webhooks":[%s]}`,
		kind, text)
}

// TestValidation has webhooks that kube-apiserver accepts or rejects (k8s.io/kubernetes
// pkg/apis/admissionregistration/validation validation_test.go).
func TestValidation(t *testing.T) {
	f := func(fields, want string) {
		t.Helper()
		for kind, plugin := range map[string]admission.Plugin{
			"ValidatingWebhookConfiguration": validatingadmissionwebhook.Plugin(),
			"MutatingWebhookConfiguration":   mutatingadmissionwebhook.Plugin(),
		} {
			err := tryConfig(t, plugin, upstreamConfig, admission.File{Name: "a.json", Content: configured(t, kind, fields)})
			wantError(t, kind+" "+fields, err, want)
		}
	}
	f("", "")
	f(`"name":"k8s.io"`, `webhooks[0].name: Invalid value: "k8s.io": should be a domain with at least three segments separated by dots`)
	f(`"name":null`, `webhooks[0].name: Required value`)
	f(`"failurePolicy":"Fail","matchPolicy":"Exact"`, "")
	f(`"failurePolicy":"Ignore","matchPolicy":"Equivalent"`, "")
	f(`"failurePolicy":"other"`, `webhooks[0].failurePolicy: Unsupported value: "other": supported values: "Fail", "Ignore"`)
	f(`"matchPolicy":"other"`, `webhooks[0].matchPolicy: Unsupported value: "other": supported values: "Equivalent", "Exact"`)
	f(`"sideEffects":"NoneOnDryRun"`, "")
	f(`"sideEffects":null`, `webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun`)
	f(`"sideEffects":"Some"`, `webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`)
	f(`"timeoutSeconds":1`, "")
	f(`"timeoutSeconds":30`, "")
	f(`"timeoutSeconds":0`, `webhooks[0].timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds`)
	f(`"timeoutSeconds":31`, `webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds`)
	f(`"namespaceSelector":{"matchLabels":{"a":"b"}},"objectSelector":{"matchLabels":{"a":"b"}}`, "")
	f(`"namespaceSelector":{"matchLabels":{"a b":"c"}}`,
		`name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character `+
			`(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`)
	f(`"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}`,
		`webhooks[0].namespaceSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`)
	f(`"objectSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}`,
		`webhooks[0].objectSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`)
	f(`"clientConfig":{}`, `webhooks[0].clientConfig: Required value: exactly one of url or service is required`)
	f(`"clientConfig":{"url":"https://a.example.com","service":{"namespace":"n","name":"m"}}`,
		`webhooks[0].clientConfig: Required value: exactly one of url or service is required`)
	f(`"clientConfig":{"service":{"namespace":"n","name":"m"}}`,
		`webhooks[0].clientConfig.service: Forbidden: clientConfig.service is not supported for static manifests; `+
			`use clientConfig.url instead, or apiVersion fastadmit.io/v1alpha1 of the plugin's configuration`)
	f(`"clientConfig":{"url":"http://a.example.com"}`,
		`webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`)
	f(`"rules":[{"operations":[],"apiGroups":["a"],"apiVersions":["a"],"resources":["a"]}]`,
		`webhooks[0].rules[0].operations: Required value`)
	f(`"admissionReviewVersions":["v2"]`, `webhooks[0].admissionReviewVersions: Invalid value: ["v2"]: must include at least one `+
		`of v1, v1beta1`)
	f(`"admissionReviewVersions":["v1beta1"]`, "")
	f(`"matchConditions":[{"name":"a","expression":"true"}]`, "")
	f(`"matchConditions":[{"name":"a b","expression":"true"}]`,
		`webhooks[0].matchConditions[0].name: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or `+
			`'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for `+
			`validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`)
	f(`"matchConditions":[{"name":"a","expression":"variables.a"}]`, "undefined field 'a'\n | variables.a\n | .........^")
	f(`"matchConditions":[{"name":"a","expression":"1"}]`,
		`webhooks[0].matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int`)
	f(`"matchConditions":[{"name":"a","expression":"authorizer.group('').resource('pods').check('get').allowed()"}]`, "")

	mutating := func(fields, want string) {
		t.Helper()
		wantError(t, fields, tryConfig(t, mutatingadmissionwebhook.Plugin(), upstreamConfig, admission.File{
			Name: "a.json", Content: configured(t, "MutatingWebhookConfiguration", fields),
		}), want)
	}
	mutating(`"reinvocationPolicy":"IfNeeded"`, "")
	mutating(`"reinvocationPolicy":"Never"`, "")
	mutating(`"reinvocationPolicy":"other"`,
		`webhooks[0].reinvocationPolicy: Unsupported value: "other": supported values: "IfNeeded", "Never"`)
}

// TestManifests has several configurations, and Services, which are only allowed with
// fastadmit's own configuration or in the API.
func TestManifests(t *testing.T) {
	plugin := validatingadmissionwebhook.Plugin()
	service := func(name, fields string) []byte {
		text := configured(t, "ValidatingWebhookConfiguration", `"clientConfig":{"service":{"namespace":"n","name":"m"`+fields+`}}`)
		return []byte(strings.Replace(string(text), `{"name":"c"}`, fmt.Sprintf(`{"name":%q}`, name), 1))
	}
	f := func(config, want string, files ...admission.File) {
		t.Helper()
		wantError(t, config, tryConfig(t, plugin, config, files...), want)
	}
	f(ownConfig, "", admission.File{Name: "a", Content: service("c", "")})
	f(upstreamConfig, "", admission.File{Name: "a", Content: service("c", ""), FromAPI: true})
	f(ownConfig, `webhooks[0].clientConfig.service.port: Invalid value: 65536: port is not valid: must be between 1 and 65535, inclusive`,
		admission.File{Name: "a", Content: service("c", `,"port":65536`)})
	f(ownConfig, "", admission.File{Name: "a", Content: service("b", "")}, admission.File{Name: "b", Content: service("a", "")},
		admission.File{Name: "c", Content: service("c", "")})
	f(ownConfig, `error loading b: duplicate name "c"`, admission.File{Name: "a", Content: service("c", "")},
		admission.File{Name: "b", Content: service("c", "")})
	f(ownConfig, `metadata.name: Required value: name or generateName is required`, admission.File{Name: "a", Content: service("", "")})

	text := string(configured(t, "ValidatingWebhookConfiguration", ""))
	one := text[strings.Index(text, `"webhooks":[`)+len(`"webhooks":[`) : len(text)-2]
	f(ownConfig, `ValidatingWebhookConfiguration "c": webhooks[1].name: Duplicate value: "a.example.com"`,
		admission.File{Name: "a", Content: []byte(strings.Replace(text, one, one+","+one, 1))})
	two := strings.Replace(text, one, one+","+strings.Replace(one, `"name":"a.example.com"`, `"name":"b.example.com"`, 1), 1)
	f(ownConfig, "", admission.File{Name: "a", Content: []byte(two)})
	none := strings.ReplaceAll(strings.Replace(text, one, one+","+one, 1), `"name":"a.example.com",`, "")
	if err := tryConfig(t, plugin, ownConfig, admission.File{Name: "a", Content: []byte(none)}); err == nil ||
		strings.Contains(err.Error(), "Duplicate") {
		t.Errorf("got %v, want names to be missing and no duplicates", err)
	}
}

// TestOrder checks that webhooks are called in the order of the names of their
// configurations.
func TestOrder(t *testing.T) {
	b := newReplies(t, func(path string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"UID","allowed":true,"warnings":["` +
			path + `"]}}`
	})
	var files []admission.File
	for _, name := range []string{"c", "a", "b"} {
		files = append(files, admission.File{Name: name, Content: fmt.Appendf(nil,
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":%s}`,
			name, b.webhooks(hook{name: "x.example.com", path: "/" + name + "x"}, hook{name: "a.example.com", path: "/" + name + "a"}))})
	}
	chain := newChain(t, validatingadmissionwebhook.Plugin(), admission.Enabled{Config: []byte(upstreamConfig), Manifests: files})
	if r := ask(t, chain, admission.Validate, pod); strings.Join(r.warnings, " ") != "/ax /aa /bx /ba /cx /ca" {
		t.Errorf("got %q", r.warnings)
	}
}

// TestRules checks that the rules of the plugin are those of its webhooks.
func TestRules(t *testing.T) {
	plugin := validatingadmissionwebhook.Plugin()
	f := func(e admission.Enabled, want ...admission.Rule) {
		t.Helper()
		got := newChain(t, plugin, e).RulesOf(plugin.Name)
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", e.Config, got, want)
		}
	}
	pods := admission.Rule{
		Operations: []codec.Operation{codec.Create}, Groups: []string{""}, Versions: []string{"v1"}, Resources: []string{"pods"},
	}
	manifests := []admission.File{
		{Name: "a", Content: configured(t, "ValidatingWebhookConfiguration", "")},
		{Name: "b", Content: []byte(strings.Replace(string(configured(t, "ValidatingWebhookConfiguration", `"rules":[]`)), `{"name":"c"}`,
			`{"name":"d"}`, 1))},
	}
	f(admission.Enabled{}, admission.Any()) // the source of webhooks is not configured
	f(admission.Enabled{Config: []byte(upstreamConfig)})
	f(admission.Enabled{Config: []byte(upstreamConfig), Manifests: manifests}, pods)
	f(admission.Enabled{Config: []byte(followConfig), Manifests: manifests}, admission.Any()) // before the custom resources are listed
}
