package policies

import (
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestNoteRules has rules that kube-apiserver accepts, and that select nothing.
func TestNoteRules(t *testing.T) {
	f := func(rule string, want ...string) {
		t.Helper()
		var s Set
		s.Add(parse("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n" +
			"spec: {matchConstraints: {resourceRules: [{apiGroups: [''], resources: [pods]}, {" + rule + "}]}}\n"))
		s.UseParams(parse("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n"+
			"spec: {group: shop.example.com, versions: [{name: v1}], "+
			"names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd]}}\n"), "default")
		for i := range want {
			want[i] = `f:1: ValidatingAdmissionPolicy "p": spec.matchConstraints.resourceRules[1].` + want[i]
		}
		var got []string
		for _, n := range s.FieldNotes(t.Context()) {
			got = append(got, n.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\ngot\n%s\nwant\n%s", rule, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	f("apiGroups: ['', apps], resources: [pods, pods/ephemeralcontainers, deployments, deployments/scale, '*', '*/scale']")
	f("apiGroups: [apps], resources: [deployment, pods]",
		`resources[0]: the group "apps" has no resource "deployment", did you mean deployments?`,
		`resources[1]: the group "apps" has no resource "pods"; the group "" has it`)
	f("apiGroups: ['', apps], resources: [Deployment/scale]",
		`resources[0]: the group "" or "apps" has no resource "Deployment", did you mean deployments?`)
	f("apiGroups: [app], resources: [deployments]", `apiGroups[0]: Kubernetes has no group "app", did you mean apps?`)
	f("apiGroups: [core], resources: [pods]", `apiGroups[0]: Kubernetes has no group "core"; that of Pods and Services is ""`)
	f("apiGroups: [extensions], resources: [ingresses]",
		`apiGroups[0]: Kubernetes has no group "extensions" since 1.22; what it had is in apps, networking.k8s.io and policy`)
	f("apiGroups: [networking.k8s.io], apiVersions: [v1, v1beta1], resources: [ingresses, ingresses/status]")
	f("apiGroups: [networking.k8s.io], apiVersions: [v1beta1], resources: [ingresses/status, networkpolicies]",
		`apiVersions: got "v1beta1", but no release of Kubernetes from 1.33 on serves ingresses/status or networkpolicies of the `+
			`group "networking.k8s.io" in this version, so the rule selects nothing`)
	f("apiGroups: [networking.k8s.io], apiVersions: [v1beta1], resources: ['*']") // 1.33 serves IPAddresses
	f("apiGroups: [shop.example.com], resources: [gadgets, gadgets/status]")
	f("apiGroups: [apps, shop.example.com], resources: [gadget, deployments, gd, Gadgets, gadgts/scale]",
		`resources[0]: the group "apps" or "shop.example.com" has no resource "gadget", did you mean gadgets?`,
		`resources[2]: the group "apps" or "shop.example.com" has no resource "gd", did you mean gadgets?`,
		`resources[3]: the group "apps" or "shop.example.com" has no resource "Gadgets", did you mean gadgets?`,
		`resources[4]: the group "apps" or "shop.example.com" has no resource "gadgts", did you mean gadgets?`)
	f("apiGroups: [shop.example.com], resources: [gadgetruns, widgets, budgets]") // their definitions may be in another file
	f("apiGroups: [apps, shop.example.com, example.com], resources: [gadget]")
	// Groups of custom resources may have anything.
	f("apiGroups: [apps, example.com], resources: [widgets]")
	f("apiGroups: ['*'], resources: [widgets]")
	f("apiGroups: [metrics.k8s.io], resources: [pods]")
	f("apiGroups: [], resources: [pods]")
	f("apiGroups: 7, resources: [pods]")
}

// TestNoteTag has a messageExpression without quotes.
func TestNoteTag(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  validations:\n" +
		"  - expression: 'false'\n    messageExpression: 'a'\n  - expression: 'false'\n    messageExpression: !has(object.a)\n"
	servertest.WriteFile(t, "p.yaml", text)
	var s Set
	s.Add(manifest.Parse("p.yaml", []byte(text)))
	var got []string
	for _, n := range s.FieldNotes(t.Context()) {
		got = append(got, n.String())
	}
	const want = `p.yaml:9: ValidatingAdmissionPolicy "p": spec.validations[1].messageExpression: ` +
		"got nothing but the YAML tag !has(object.a); YAML takes"
	if len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNoteParameters has a binding that names no parameter of a policy that needs one.
func TestNoteParameters(t *testing.T) {
	var s Set
	const binding = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\n"
	s.Add(parse("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n" +
		"spec: {paramKind: {apiVersion: v1, kind: ConfigMap}}\n" + binding + "spec: {policyName: p}\n" +
		binding + "spec: {policyName: p, paramRef: {name: c}}\n" + binding + "spec: {policyName: q}\n"))
	var got []string
	for _, n := range s.FieldNotes(t.Context()) {
		got = append(got, n.String())
	}
	want := []string{`f:6: ValidatingAdmissionPolicyBinding "b": spec.paramRef: got none, so params is null: ` +
		`the policy "p" has a paramKind, and needs a parameter of the kind ConfigMap`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNoteUnknownParameters has kinds of parameters that Kubernetes and the definitions among the input do not have.
func TestNoteUnknownParameters(t *testing.T) {
	f := func(paramKind, want string) {
		t.Helper()
		var s Set
		s.Add(parse("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n" +
			"spec: {paramKind: {apiVersion: " + paramKind + "}}\n"))
		s.UseParams(parse("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: limits.example.com}\n"+
			"spec: {group: example.com, names: {kind: Limits, plural: limits}, scope: Cluster, "+
			"versions: [{name: v1, served: true}]}\n"), "")
		var got []string
		for _, n := range s.FieldNotes(t.Context()) {
			got = append(got, n.String())
		}
		if want != "" {
			want = `f:1: ValidatingAdmissionPolicy "p": spec.paramKind.kind: ` + want
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s: got %q, want %q", paramKind, got, want)
		}
	}
	f("v1, kind: ConfigMap", "")
	f("v1, kind: ConfigMapp", `unknown kind "ConfigMapp" of apiVersion "v1", did you mean ConfigMap?`)
	f("apps/v1beta1, kind: Deployment", `unknown kind "Deployment" of apiVersion "apps/v1beta1"; it is known in apps/v1`)
	f("example.com/v1, kind: Limits", "")
	f("example.com/v1, kind: Limit", `unknown kind "Limit" of apiVersion "example.com/v1", did you mean Limits?`)
	f("example.org/v1, kind: Limit", "") // a cluster may have it
}

// TestBindNotesParameters has a policy whose parameters only a binding can name.
func TestBindNotesParameters(t *testing.T) {
	var s Set
	s.Add(parse("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n" +
		"spec: {paramKind: {apiVersion: v1, kind: ConfigMap}}\n"))
	const want = `f:1: ValidatingAdmissionPolicy "p" needs a parameter of the kind ConfigMap, and --bind-policies gives it none, so ` +
		`params is null: write a binding with a paramRef`
	if s.Bind(Actions[0]); !slices.Equal(s.Notes(), []string{want}) {
		t.Errorf("got %q, want %q", s.Notes(), want)
	}
}
