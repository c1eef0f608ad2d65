package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/handlers"
)

// manifests returns what "fastadmit manifests" prints for the files in the
// release's ConfigMap.
func manifests(t *testing.T, r release) release {
	t.Helper()
	return parse(t, run(t, binary, append([]string{"manifests"}, files(t, r)...)...))
}

// TestWebhooks compares the webhook configurations of the chart with those
// that fastadmit would make.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	f := func(name, values string, narrower bool) {
		t.Run(name, func(t *testing.T) {
			r := render(t, values+ownCertificate()+writesAllowed, "")
			got, want := webhooks(t, r), webhooks(t, manifests(t, r))
			if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
				t.Fatalf("got %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
			for name := range want {
				compareWebhooks(t, got[name], want[name], narrower)
			}
		})
	}
	for name, h := range table(t) {
		f(name, fmt.Sprintf("plugins: {%s: {%s}}", name, settingsOf(name, h)), false)
	}
	f("several", somePlugins, false)
	f("shadow", somePlugins+"shadow: {plugins: {PodSecurity: {}, DenyServiceExternalIPs: {failurePolicy: Fail}}}", false)
	f("registration", somePlugins+`
service: {port: 1234}
webhooks: {name: a.b.c, timeoutSeconds: 30, excludedNamespaces: [x], namespaceSelector: {matchLabels: {a: b}}, objectSelector: `+
		`{matchLabels: {a: b}},
  matchConditions: [{name: a, expression: "true"}]}`, false)
	f("same-selectors", `plugins:
  AlwaysPullImages: {namespaceSelector: {matchLabels: {a: b}}, objectSelector: {matchExpressions: [{key: c, operator: Exists}]}}
  DefaultTolerationSeconds: {namespaceSelector: {matchLabels: {a: b}}, objectSelector: {matchExpressions: [{key: c, operator: `+
		`Exists}]}}`, false)
	f("other-selectors", `plugins:
  AlwaysPullImages: {namespaceSelector: {matchLabels: {a: b}}}
  DefaultTolerationSeconds: {namespaceSelector: {matchLabels: {a: c}}}
  SecurityContextDeny: {}`, false)
	f("workload-pods", `podTemplatePaths: {rollouts.argoproj.io: .spec.template}
plugins:
  AlwaysPullImages: {workloadPods: deny, objectSelector: {matchLabels: {a: b}}}
  SecurityContextDeny: {workloadPods: "off", failurePolicy: Ignore, objectSelector: {matchLabels: {a: b}}}`, false)
	f("rules", `plugins:
  AlwaysPullImages: {rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods, services]}]}`, true)
}

// compareWebhooks compares rules and selectors by what they match. If the configured rules of a
// plugin are narrower than what it handles, the chart may have kube-apiserver call for more.
func compareWebhooks(t *testing.T, got, want admissionregistrationv1.ValidatingWebhook, narrower bool) {
	t.Helper()
	gotRules, wantRules := atoms(got.Rules), atoms(want.Rules)
	for rule := range wantRules {
		if !gotRules[rule] {
			t.Errorf("%s: got no rule for %s", want.Name, rule)
		}
	}
	if len(gotRules) != len(wantRules) && !narrower {
		t.Errorf("%s: got rules %v, want %v", want.Name, slices.Sorted(maps.Keys(gotRules)), slices.Sorted(maps.Keys(wantRules)))
	}
	for _, s := range [][2]*metav1.LabelSelector{{got.NamespaceSelector, want.NamespaceSelector},
		{got.ObjectSelector, want.ObjectSelector}} {
		if requirements(t, s[0]) != requirements(t, s[1]) {
			t.Errorf("%s: got selector %s, want %s", want.Name, requirements(t, s[0]), requirements(t, s[1]))
		}
	}
	got.Rules, got.NamespaceSelector, got.ObjectSelector = want.Rules, want.NamespaceSelector, want.ObjectSelector
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s\nwant %s", show(t, got), show(t, want))
	}
}

func show(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// atoms splits rules.
func atoms(rules []admissionregistrationv1.RuleWithOperations) map[string]bool {
	all := make(map[string]bool)
	for _, r := range rules {
		scope := admissionregistrationv1.AllScopes
		if r.Scope != nil {
			scope = *r.Scope
		}
		for _, o := range r.Operations {
			for _, g := range r.APIGroups {
				for _, v := range r.APIVersions {
					for _, resource := range r.Resources {
						all[fmt.Sprintf("%s %q %s %s %s", o, g, v, resource, scope)] = true
					}
				}
			}
		}
	}
	return all
}

// requirements returns a selector as text. Equivalent selectors have the same text.
func requirements(t *testing.T, s *metav1.LabelSelector) string {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := selector.Requirements()
	var all []string
	for i := range list {
		text := list[i].String()
		if values := list[i].Values(); list[i].Operator() == selection.In && len(values) == 1 {
			text = list[i].Key() + "=" + values.UnsortedList()[0]
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " and ")
}

// configurations are those of plugins that need one, as values of the chart.
var configurations = map[string]string{
	"EventRateLimit": "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: " +
		"50, burst: 100}]}",
	"ImagePolicyWebhook": "{imagePolicy: {kubeConfigFile: " + backend() + "}}",
	"InitialResources":   "{apiVersion: fastadmit.io/v1alpha1, kind: InitialResourcesConfiguration, source: {url: http://127.0.0.1:1}}",
	"PersistentVolumeLabel": "{apiVersion: fastadmit.io/v1alpha1, kind: PersistentVolumeLabelConfiguration, volumes: [{provider: gce, " +
		"id: d, labels: {a: b}}]}",
}

// backend returns the path of a kubeconfig for a backend that is not called.
func backend() string {
	path, err := filepath.Abs("testdata/backend.kubeconfig")
	if err != nil {
		panic(err)
	}
	return path
}

// A handled is the chart's description of a plugin.
type handled struct {
	// Everything is set if the plugin handles every resource, unless rules in its settings narrow
	// it.
	Everything  bool   `json:"everything,omitempty"`
	SideEffects string `json:"sideEffects,omitempty"`
	// Cluster contains the plugin's rights in the cluster.
	Cluster []rbacv1.PolicyRule `json:"cluster,omitempty"`
	// Writes is set if the plugin writes to the cluster and must therefore authenticate callers.
	Writes   bool                                         `json:"writes,omitempty"`
	Mutate   []admissionregistrationv1.RuleWithOperations `json:"mutate,omitempty"`
	Validate []admissionregistrationv1.RuleWithOperations `json:"validate,omitempty"`
}

// needs returns what a plugin declares.
func needs(name string) []cluster.Need { return needsWith(name, nil) }

// needsWith returns what a plugin needs with a configuration.
func needsWith(name string, config []byte) []cluster.Need {
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		if p.Name == name {
			return p.AllNeeds(config)
		}
	}
	return nil
}

// settingsOf returns settings that the chart accepts for a plugin.
func settingsOf(name string, h handled) string {
	if h.Everything {
		scope := *slices.Concat(h.Mutate, h.Validate)[0].Scope // a template cannot narrow the rules in settings
		return fmt.Sprintf(`rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: "%s"}]`, scope)
	}
	if configuration := configurations[name]; configuration != "" {
		return "configuration: " + configuration
	}
	return ""
}

const tableFile = "chart/files/plugins.yaml"

// TestTable generates files/plugins.yaml.
func TestTable(t *testing.T) {
	t.Parallel()
	text, err := yaml.Marshal(table(t))
	if err != nil {
		t.Fatal(err)
	}
	want := "# What plugins are called for, as fastadmit manifests has it. Generated: cd deploy && go test . -run TestTable -update\n" +
		string(text)
	if *update {
		if err := os.WriteFile(tableFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, tableFile); got != want {
		t.Errorf("%s is not current: go test . -run TestTable -update writes it anew\ngot\n%s\nwant\n%s", tableFile, got, want)
	}
}

// table runs fastadmit manifests for each plugin.
func table(t *testing.T) map[string]handled {
	t.Helper()
	all := make(map[string]handled)
	for line := range strings.Lines(run(t, binary, "plugins")) {
		name, _, _ := strings.Cut(line, " ")
		if name == "NAME" {
			continue
		}
		admission := fmt.Sprintf("{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: %s, "+
			"configuration: %s}]}",
			name, configurations[name])
		printed := webhooks(t, parse(t, run(t, binary, "manifests", "--enable-admission-plugins="+name,
			"--admission-control-config-file="+writeFile(t, "admission.yaml", admission))))
		h := handled{Cluster: cluster.Rules(needs(name)...)}
		for _, need := range needs(name) {
			h.Writes = h.Writes || len(need.Writes()) > 0
		}
		for _, w := range printed {
			phase := &h.Validate
			if strings.HasPrefix(w.Name, "mutate-") {
				phase = &h.Mutate
			}
			*phase = w.Rules
			h.Everything = h.Everything || slices.Contains(w.Rules[0].Resources, "*") || slices.Contains(w.Rules[0].Resources, "*/*")
			if s := *w.SideEffects; s != admissionregistrationv1.SideEffectClassNone {
				h.SideEffects = string(s)
			}
		}
		all[name] = h
	}
	return all
}
