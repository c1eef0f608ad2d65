package policies

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/allocs"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

const (
	kubernetes = "apiVersion: admissionregistration.k8s.io/v1\n"
	custom     = "apiVersion: policies.fastadmit.io/v1\n"

	policy  = "kind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec: {paramKind: {apiVersion: v1, kind: ConfigMap}}\n"
	binding = "kind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p}\n"
	mutates = "kind: MutatingAdmissionPolicy\nmetadata: {name: m}\nspec: {}\n"
)

func parse(documents ...string) []manifest.Item {
	return manifest.Parse("f", []byte(strings.Join(documents, "---\n")))
}

func configMap(name, namespace, text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %q, labels: {a: b}}\ndata: {text: %q}\n", name,
		namespace, text)
}

func TestKinds(t *testing.T) {
	f := func(apiVersion, kind string, isPolicy bool, unknown string) {
		t.Helper()
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		got := ""
		if err := Unknown(gvk); err != nil {
			got = err.Error()
		}
		if IsPolicy(gvk) != isPolicy || got != unknown {
			t.Errorf("%s: got %t and %q, want %t and %q", gvk, IsPolicy(gvk), got, isPolicy, unknown)
		}
	}
	for _, apiVersion := range []string{"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1alpha1",
		"policies.fastadmit.io/v1"} {
		for _, kind := range []string{
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		} {
			f(apiVersion, kind, true, "")
		}
	}
	f("example.com/v1", "ValidatingAdmissionPolicy", false,
		"got a ValidatingAdmissionPolicy of example.com/v1, want admissionregistration.k8s.io/v1 or policies.fastadmit.io/v1")
	f("v1", "MutatingAdmissionPolicyBinding", false,
		"got a MutatingAdmissionPolicyBinding of v1, want admissionregistration.k8s.io/v1 or policies.fastadmit.io/v1")
	f("policies.fastadmit.io/v2", "ValidatingAdmissionPolicy", true,
		"got the version policies.fastadmit.io/v2, want policies.fastadmit.io/v1")
	f("policy.kyverno.io/v1", "ValidatingPolicy", false,
		"got a ValidatingPolicy of policy.kyverno.io/v1, want the group policies.kyverno.io")
	f("policies.kyverno.io/v1", "ValidatingPolicy", true, "")
	f("cli.kyverno.io/v1", "Test", false, "")
	f("nvidia.com/v1", "ClusterPolicy", false, "")
	f("v1", "Pod", false, "")
	f("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", false, "")
	f("admissionregistration.k8s.io/v1", "Policy", false, `got the kind "Policy" of admissionregistration.k8s.io/v1, want `+
		`ValidatingAdmissionPolicy, `+
		"ValidatingAdmissionPolicyBinding, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding")
	f("policies.fastadmit.io/v1", "PolicyReplica", false, "")
	f("policies.fastadmit.io/v1", "ValidatingPolicy", false, `got the kind "ValidatingPolicy" of policies.fastadmit.io/v1, want `+
		`ValidatingAdmissionPolicy, `+
		"ValidatingAdmissionPolicyBinding, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, PolicyException")
	f("policies.fastadmit.io/v1", "PolicyException", true, "")
	f("policies.kyverno.io/v1", "PolicyException", true, "")
}

func TestAddResources(t *testing.T) {
	table := discovery.NewTable(nil)
	AddResources(table)
	f := func(apiVersion, kind, want string) {
		t.Helper()
		got, err := table.Find(schema.FromAPIVersionAndKind(apiVersion, kind))
		if err != nil || got.Resource != want || got.Namespaced || got.GroupVersion().String() != apiVersion {
			t.Errorf("%s %s: got %v, %v, want %s", apiVersion, kind, got, err, want)
		}
	}
	f("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
	f("policies.fastadmit.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
	f("policies.fastadmit.io/v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
	f("admissionregistration.k8s.io/v1alpha1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies")
	f("admissionregistration.k8s.io/v1beta1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
}

// applied returns the manifests of each plugin after Apply.
func applied(s *Set, enabled map[string]admission.Enabled, disabled []string) (all []string, unknown []string) {
	unknown = s.Apply(enabled, disabled, []string{"ValidatingAdmissionPolicy", "Other"})
	for plugin, e := range enabled {
		for _, file := range e.Manifests {
			all = append(all, plugin+" "+file.Name+" "+string(file.Content))
		}
	}
	slices.Sort(all)
	return all, unknown
}

func TestApply(t *testing.T) {
	const given = `ValidatingAdmissionPolicy f:1 {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy",` +
		`"metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}}}`
	items := parse(custom+policy+"status: {observedGeneration: 1}\n", configMap("c", "", ""), kubernetes+mutates, "x: [")
	f := func(enables bool, enabled map[string]admission.Enabled, disabled, want, unknown []string) {
		t.Helper()
		s := new(Set)
		if added := s.Add(items); added != 2 {
			t.Errorf("got %d policies, want 2", added)
		}
		if enables {
			s.Enable()
		}
		got, gotUnknown := applied(s, enabled, disabled)
		if !slices.Equal(got, want) || !slices.Equal(gotUnknown, unknown) {
			t.Errorf("got %q and %q, want %q and %q", got, gotUnknown, want, unknown)
		}
	}
	f(false, map[string]admission.Enabled{}, nil, nil, nil)
	f(false, map[string]admission.Enabled{"ValidatingAdmissionPolicy": {}}, nil, []string{given}, nil)
	f(true, map[string]admission.Enabled{}, nil, []string{given}, []string{"MutatingAdmissionPolicy"})
	f(true, map[string]admission.Enabled{}, []string{"ValidatingAdmissionPolicy"}, nil, []string{"MutatingAdmissionPolicy"})
	s := new(Set)
	s.Add(append(items, parse(kubernetes+strings.ReplaceAll(mutates, "name: m", "name: n"))...))
	s.Enable()
	s.UseParams(parse(configMap("c", "", "")), "ns")
	enabled := make(map[string]admission.Enabled)
	if _, unknown := applied(s, enabled, nil); !slices.Equal(unknown, []string{"MutatingAdmissionPolicy"}) {
		t.Errorf("got the unknown plugins %q, want one once", unknown)
	}
	e := enabled["ValidatingAdmissionPolicy"]
	if len(e.Params) != 1 || len(e.Params[0].Objects) != 1 || !e.Manifests[0].FromAPI {
		t.Errorf("got %+v, want a parameter, and a file of the API", e)
	}
	f(false, map[string]admission.Enabled{"ValidatingAdmissionPolicy": {Manifests: []admission.File{{Name: "a"}}}}, nil,
		[]string{"ValidatingAdmissionPolicy a ", given}, nil)
}

func TestBind(t *testing.T) {
	s := new(Set)
	s.Add(parse(kubernetes+policy, kubernetes+mutates, kubernetes+strings.ReplaceAll(policy, "name: p", "name: bound"),
		kubernetes+strings.ReplaceAll(binding, "policyName: p", "policyName: bound")))
	s.Bind("Warn")
	var got []string
	for i := range s.documents[4:] {
		got = append(got, s.documents[4+i].item.String()+" "+string(s.documents[4+i].text))
	}
	want := []string{
		`f:1 {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"p"},` +
			`"spec":{"policyName":"p","validationActions":["Warn"]}}`,
		`f:6 {"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"m"},` +
			`"spec":{"policyName":"m"}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Bind("Warn"); len(s.documents) != 6 {
		t.Errorf("got %d documents after another Bind, want 6", len(s.documents))
	}
}

func TestNotes(t *testing.T) {
	s := new(Set)
	s.Add(parse(kubernetes+policy, kubernetes+strings.ReplaceAll(binding, "policyName: p", "policyName: q")))
	if got := s.Notes(); got != nil {
		t.Errorf("got %q before Apply, want none", got)
	}
	s.Apply(map[string]admission.Enabled{"ValidatingAdmissionPolicy": {}}, nil, []string{"ValidatingAdmissionPolicy"})
	want := []string{
		`f:6: ValidatingAdmissionPolicyBinding "b" is of ValidatingAdmissionPolicy "q", which does not exist, so it does nothing`,
		`f:1: ValidatingAdmissionPolicy "p" has no binding, so it is not evaluated; --bind-policies evaluates it`,
	}
	if got := s.Notes(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	many := &Set{applied: true}
	for _, name := range []string{"r", "q", "s", "t"} {
		many.Add(parse(kubernetes + strings.ReplaceAll(policy, "name: p", "name: "+name)))
	}
	if got := many.Notes(); len(got) != 2 || !strings.Contains(got[0], `"r" has no binding`) ||
		got[1] != "3 more policies have no binding" {
		t.Errorf("got %q, want the first policy, and the number of the others", got)
	}
	// A policy and a binding of other kinds do not count.
	s.Add(parse(kubernetes+strings.NewReplacer("Validating", "Mutating", "name: p", "name: q").Replace(policy),
		kubernetes+strings.ReplaceAll(binding, "Validating", "Mutating")))
	if got := s.Notes(); len(got) != 4 {
		t.Errorf("got %q, want 4 notes", got)
	}
	s = &Set{applied: true}
	s.Add(parse(kubernetes+policy, kubernetes+strings.ReplaceAll(binding, "policyName: p", "policyName: q")))
	s.Add(parse(kubernetes + strings.ReplaceAll(policy, "name: p", "name: q")))
	s.Add(parse(kubernetes + binding))
	if got := s.Notes(); got != nil {
		t.Errorf("got %q of policies that are bound, want none", got)
	}
}

const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: limits.example.com}\n" +
	"spec: {group: example.com, scope: Cluster, names: {kind: Limit, plural: limits}, versions: [{name: v1, served: true}]}\n"

func TestUseParams(t *testing.T) {
	f := func(paramKind string, items []manifest.Item, want ...string) {
		t.Helper()
		s := new(Set)
		s.Add(parse(kubernetes+strings.ReplaceAll(policy, "{apiVersion: v1, kind: ConfigMap}", paramKind), kubernetes+binding))
		s.UseParams(items, "ns")
		s.UseParams(items, "ns") // for the kinds that are new
		var got []string
		for _, p := range s.params {
			got = append(got, fmt.Sprintf("%s %s %t", p.APIVersion, p.Kind, p.Namespaced))
			for _, o := range p.Objects {
				got = append(got, fmt.Sprintf("%s/%s %v", o.Namespace, o.Name, o.Labels))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", paramKind, got, want)
		}
	}
	const isConfigMap = "v1 ConfigMap true"
	f("{apiVersion: v1, kind: ConfigMap}", nil, isConfigMap)
	f("{apiVersion: v1, kind: ConfigMap}", parse(configMap("a", "", "1"), configMap("b", "other", ""), configMap("a", "ns", "2"), "x: ["),
		isConfigMap, "other/b map[a:b]", "ns/a map[a:b]")
	f("{apiVersion: v1, kind: ConfigMap, APIVersion: x}", nil, isConfigMap)
	f("{apiVersion: v1, kind: ConfigMap}", parse(configMap("a", "x", ""), configMap("a", "y", "")), isConfigMap, "x/a map[a:b]",
		"y/a map[a:b]")
	f("null", parse(configMap("a", "", "")))
	f("{apiVersion: v2, kind: ConfigMap}", parse(configMap("a", "", "")))
	f("{apiVersion: example.com/v1, kind: Limit}", parse("apiVersion: example.com/v1\nkind: Limit\nmetadata: {name: l}\n"))
	f("{apiVersion: example.com/v1, kind: Limit}",
		parse(crd, "apiVersion: example.com/v1\nkind: Limit\nmetadata: {name: l, namespace: x}\n"),
		"example.com/v1 Limit false", "/l map[]")
}

// TestUseKinds has policies with parameters of several kinds.
func TestUseKinds(t *testing.T) {
	s := new(Set)
	for _, kind := range []string{"ConfigMap", "Secret", "ConfigMap"} {
		s.Add(parse(kubernetes + strings.ReplaceAll(policy, "kind: ConfigMap}", "kind: "+kind+"}")))
	}
	s.UseParams(parse(configMap("a", "", ""), strings.ReplaceAll(configMap("b", "", ""), "ConfigMap", "Secret")), "ns")
	if len(s.params) != 2 || len(s.params[0].Objects) != 1 || len(s.params[1].Objects) != 1 || s.params[1].Objects[0].Name != "b" {
		t.Errorf("got %+v, want one of each kind", s.params)
	}
}

func TestReplaced(t *testing.T) {
	f := func(given, input string, want ...string) {
		t.Helper()
		var got []string
		for _, err := range Replaced(parse(crd, given), manifest.Parse("in", []byte(input)), "ns") {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nand\n%s\ngot %q, want %q", given, input, got, want)
		}
	}
	const replaced = `in:1: ConfigMap "a" would replace that of f:6`
	f(configMap("a", "", "1"), configMap("a", "ns", "2"), replaced)
	f(configMap("a", "ns", "1"), configMap("a", "", "2"), replaced)
	f(configMap("a", "ns", "1"), configMap("a", "other", "2"))
	f(configMap("a", "ns", "1"), configMap("b", "ns", "2"))
	f(configMap("a", "ns", "1"), configMap("a", "ns", "1"))
	f(configMap("a", "ns", "1"), `{"kind":"ConfigMap", "apiVersion":"v1", "data":{"text":"1"}, `+
		`"metadata":{"namespace":"ns","name":"a","labels":{"a":"b"}}}`)
	// The namespace of a cluster-scoped object does not matter, nor does the version.
	f("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: x}\n",
		`in:1: Namespace "a" would replace that of f:6`)
	f("apiVersion: example.com/v1\nkind: Limit\nmetadata: {name: a}\n",
		"apiVersion: example.com/v1\nkind: Limit\nmetadata: {name: a, namespace: x}\n",
		`in:1: Limit "a" would replace that of f:6`)
	f("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\n",
		"apiVersion: storage.k8s.io/v1beta1\nkind: StorageClass\nmetadata: {name: a}\n")
	f("x: [", "x: [")
	f("apiVersion: example.org/v1\nkind: Limit\nmetadata: {name: a}\n",
		"apiVersion: example.org/v1\nkind: Limit\nmetadata: {name: a}\nspec: {}\n")
	f("apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a}\n", configMap("''", "", ""))
}

func TestLocate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	content := "# policies\n---\n" + kubernetes + "kind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  validations:\n  - " +
		"expression: 'true'\n  - expression: x\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := new(Set)
	s.Add(manifest.Read([]string{file}, nil, files.Everywhere))
	at := func(path string, index int) *field.Path {
		return field.NewPath("spec").Child("validations").Index(index).Child(path)
	}
	f := func(err error, want string) {
		t.Helper()
		got := ""
		if located := s.Locate(err); located != nil {
			got = strings.ReplaceAll(located.Error(), file, "FILE")
		}
		if got != want {
			t.Errorf("%v:\ngot  %s\nwant %s", err, got, want)
		}
	}
	about := func(err error) error {
		return &admission.EnableError{Plugin: "V", Err: &admission.FileError{File: file + ":3", Err: err}}
	}
	const document = `: ValidatingAdmissionPolicy "p": `
	f(nil, "")
	f(errors.New("other"), "other")
	f(about(errors.New("wrong")), "FILE:3"+document+"wrong")
	f(about(field.Required(at("expression", 1), "")), "FILE:9"+document+"spec.validations[1].expression: Required value")
	f(about(errors.New(`unknown field "spec.validations[0].mesage"`)), "FILE:8"+document+`unknown field "spec.validations[0].mesage"`)
	f(about(utilerrors.NewAggregate([]error{field.Required(at("expression", 0), ""), field.Required(at("expression", 1), "")})),
		"FILE:8"+document+"spec.validations[0].expression: Required value\nFILE:9"+document+
			"spec.validations[1].expression: Required value")
	// An error that wraps several errors is split into these; for one that wraps a single error, the outer text counts.
	f(about(fmt.Errorf("around: %w", utilerrors.NewAggregate([]error{errors.New("a"), errors.New("b")}))),
		"FILE:3"+document+"a\nFILE:3"+document+"b")
	f(about(fmt.Errorf("around: %w", errors.New("a"))), "FILE:3"+document+"around: a")
	f(about(fmt.Errorf("around: %w", field.Required(at("expression", 1), ""))),
		"FILE:9"+document+"spec.validations[1].expression: Required value")
	// An error that is not about a document stays with the plugin, and comes last.
	f(errors.Join(errors.New("first"), about(errors.New("wrong"))), "FILE:3"+document+"wrong\nfirst")
	f(&admission.EnableError{Plugin: "V", Err: &admission.FileError{File: "else", Err: errors.New("wrong")}},
		(&admission.EnableError{Plugin: "V", Err: &admission.FileError{File: "else", Err: errors.New("wrong")}}).Error())
}

// TestLocateMany locates the errors of many documents. The file must not be read again for each of them:
// that took half a minute.
func TestLocateMany(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector makes it take half a minute")
	}
	const n, most = 5000, 64 << 10
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte(strings.Repeat("---\n"+kubernetes+policy, n)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := new(Set)
	s.Add(manifest.Read([]string{file}, nil, files.Everywhere))
	var errs []error
	for i := range n {
		err := errors.New(`unknown field "spec"`)
		errs = append(errs, &admission.FileError{File: fmt.Sprintf("%s:%d", file, 5*i+2), Err: err},
			&admission.FileError{File: fmt.Sprintf("%s:%d", file, 2), Err: err})
	}
	var located string
	if took := allocs.Bytes(func() { located = s.Locate(errors.Join(errs...)).Error() }); took > n*most {
		t.Errorf("took %d bytes for a document, want at most %d", took/n, most)
	}
	if want := fmt.Sprintf(":%d: ValidatingAdmissionPolicy", 5*n); strings.Count(located, "\n") != 2*n-1 ||
		!strings.Contains(located, want) {
		t.Errorf("got %d lines, without %q", strings.Count(located, "\n")+1, want)
	}
}
