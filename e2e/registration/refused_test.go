package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/registration"
)

// refused compares the errors for the same values: fastadmit's, before it prints anything, and the
// API server's.
func (s *stand) refused(t *testing.T) {
	t.Run("options", s.refusedOptions)
	t.Run("client-config", s.refusedClientConfig)
	t.Run("names", s.refusedNames)
	t.Run("plugins", s.refusedPlugins)
}

// printed returns the configurations of a plugin, with both kinds of webhooks.
func printed(t *testing.T) *registration.Registration {
	t.Helper()
	options := &registration.Options{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1")}}
	r, err := registration.New([]registration.Plugin{{Plugin: &admission.Plugin{
		Name: "P", Mutates: true, Validates: true, Rules: []admission.Rule{admission.CreateUpdate("pods")},
	}}}, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// create tries to create both configurations. It returns the API server's errors, which must be the
// same for both.
func (s *stand) create(t *testing.T, r *registration.Registration) []string {
	t.Helper()
	client := s.Client.AdmissionregistrationV1()
	_, err := client.MutatingWebhookConfigurations().Create(context.Background(), r.Mutating, dryRun)
	mutating := causes(t, err)
	_, err = client.ValidatingWebhookConfigurations().Create(context.Background(), r.Validating, dryRun)
	validating := causes(t, err)
	if !slices.Equal(mutating, validating) {
		t.Errorf("mutating: %q, validating: %q", mutating, validating)
	}
	return validating
}

func causes(t *testing.T, err error) (all []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.Status().Reason != metav1.StatusReasonInvalid {
		t.Fatalf("got %v, want what is invalid", err)
	}
	for _, cause := range status.Status().Details.Causes {
		all = append(all, cause.Field+": "+cause.Message)
	}
	slices.Sort(all)
	return all
}

// texts returns fastadmit's errors.
func texts(t *testing.T, err error) (all []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := errors.AsType[utilerrors.Aggregate](err)
	if !ok {
		t.Fatalf("got %v, want an error that joins all", err)
	}
	for _, e := range joined.Errors() {
		all = append(all, e.Error())
	}
	slices.Sort(all)
	return all
}

// both checks options that are also fields of a webhook: both must refuse a value in the same
// words, or accept it.
func (s *stand) both(t *testing.T, refused bool, text string) {
	t.Helper()
	options := new(registration.Options)
	if err := yaml.UnmarshalStrict([]byte(text), options); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	ours := texts(t, options.Validate(field.NewPath("webhooks").Index(0)))
	r := printed(t)
	if strings.Contains(text, "clientConfig") {
		r.Mutating.Webhooks[0].ClientConfig, r.Validating.Webhooks[0].ClientConfig = options.ClientConfig, options.ClientConfig
	}
	for _, webhook := range []any{&r.Mutating.Webhooks[0], &r.Validating.Webhooks[0]} {
		if err := yaml.Unmarshal([]byte(text), webhook); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	theirs := s.create(t, r)
	if !slices.Equal(ours, theirs) || (len(theirs) > 0) != refused {
		t.Errorf("%s\nfastadmit %s\nAPI server %s", text, strings.Join(ours, "\n          "), strings.Join(theirs, "\n           "))
	}
}

func (s *stand) refusedOptions(t *testing.T) {
	f := func(refused bool, text string) {
		t.Helper()
		s.both(t, refused, text)
	}
	const fine, bad = false, true
	f(bad, "timeoutSeconds: -1")
	f(bad, "timeoutSeconds: 0")
	f(fine, "timeoutSeconds: 1")
	f(fine, "timeoutSeconds: 30")
	f(bad, "timeoutSeconds: 31")
	f(fine, "matchPolicy: Exact")
	f(bad, "matchPolicy: exact")
	f(bad, "namespaceSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}")
	f(bad, "objectSelector: {matchExpressions: [{key: a, operator: In}]}")
	f(bad, "objectSelector: {matchLabels: {a b: '-'}}")
	f(bad, "admissionReviewVersions: []")
	f(fine, "admissionReviewVersions: [v1beta1]")
	f(fine, "admissionReviewVersions: [v2, v1]")
	f(bad, "admissionReviewVersions: [v2]")
	f(bad, "admissionReviewVersions: [v1, v1]")
	f(bad, "admissionReviewVersions: [v1, V1]")
	conditions := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("{name: c%d, expression: 'true'}", i))
		}
		return "matchConditions: [" + strings.Join(all, ", ") + "]"
	}
	f(fine, conditions(63))
	f(fine, conditions(64))
	f(bad, conditions(65))
	f(bad, "matchConditions: [{name: a, expression: ' '}]")
	f(bad, "matchConditions: [{expression: 'true'}]")
	f(bad, "matchConditions: [{name: a b, expression: 'true'}]")
	f(bad, "matchConditions: [{name: a, expression: 'true'}, {name: a, expression: 'false'}]")
	f(bad, "{timeoutSeconds: 31, matchPolicy: x}")
}

func (s *stand) refusedClientConfig(t *testing.T) {
	f := func(refused bool, text string) {
		t.Helper()
		s.both(t, refused, "clientConfig: "+text)
	}
	const fine, bad = false, true
	service := func(more string) string { return "{service: {namespace: n, name: s" + more + "}}" }
	f(bad, service(", port: 0"))
	f(fine, service(", port: 1"))
	f(fine, service(", port: 65535"))
	f(bad, service(", port: 65536"))
	f(bad, "{service: {}}")
	for _, path := range []string{"", "/", "/a", "/a/", "/a/b.c-d/0"} {
		f(fine, service(", path: '"+path+"'"))
	}
	for _, path := range []string{"//", "/a//b", "/a//", "///", "/A", "/a_b", "aa", "/-"} {
		f(bad, service(", path: '"+path+"'"))
	}
	f(fine, "{url: 'https://a'}")
	f(fine, "{url: 'https://a:1/b?'}")
	f(bad, "{url: 'https://a', service: {namespace: n, name: s}}")
	for _, url := range []string{"", "http://a", "https:///a", "a", "https://a#b", "https://a?b=c", "https://a:b", "https://user@a"} {
		f(bad, "{url: '"+url+"'}")
	}
}

// refusedNames checks names, which occur in several places of a configuration.
func (s *stand) refusedNames(t *testing.T) {
	f := func(name, ours, theirs string) {
		t.Helper()
		options := &registration.Options{Name: name}
		if got := strings.Join(texts(t, options.Validate(nil)), "\n"); !strings.Contains(got, ours) || (got == "") != (ours == "") {
			t.Errorf("%s: fastadmit: got %s, want %s", name, got, ours)
		}
		r := printed(t)
		r.Mutating.Name, r.Validating.Name = name, name
		r.Mutating.Webhooks[0].Name, r.Validating.Webhooks[0].Name = "validate-ignore."+name, "validate-ignore."+name
		if got := strings.Join(s.create(t, r), "\n"); !strings.Contains(got, theirs) || (got == "") != (theirs == "") {
			t.Errorf("%s: API server: got %s, want %s", name, got, theirs)
		}
	}
	f("a.b", "", "")
	const segments = "should be a domain with at least three segments separated by dots"
	f("a", "name: Invalid value: \"a\": it ends the names of webhooks, as in \"validate-ignore.a\": "+segments,
		"webhooks[0].name: Invalid value: \"validate-ignore.a\": "+segments)
	f("A.b", "name: Invalid value", "metadata.name: Invalid value")
	long := strings.Repeat("a", 235) + ".b"
	f(long, "", "")
	f("a"+long, "must be no more than 253 characters", "webhooks[0].name: Invalid value: \"validate-ignore.a"+long+
		"\": must be no more than 253 characters")
}

func (s *stand) refusedPlugins(t *testing.T) {
	f := func(change func(p *registration.Plugin)) {
		t.Helper()
		p := registration.Plugin{Plugin: &admission.Plugin{
			Name: "P", Mutates: true, Validates: true, Rules: []admission.Rule{admission.CreateUpdate("pods")},
		}}
		change(&p)
		_, err := registration.New([]registration.Plugin{p}, new(registration.Options), nil)
		ours := texts(t, err)
		for i := range ours {
			ours[i] = strings.Replace(ours[i], "plugins[P]", "webhooks[0]", 1)
		}
		r := printed(t)
		m, v := &r.Mutating.Webhooks[0], &r.Validating.Webhooks[0]
		rule := p.Rules[0].WithOperations()
		m.Rules, v.Rules = []admissionregistrationv1.RuleWithOperations{rule}, []admissionregistrationv1.RuleWithOperations{rule}
		if p.FailurePolicy != "" {
			m.FailurePolicy, v.FailurePolicy = &p.FailurePolicy, &p.FailurePolicy
		}
		if p.SideEffects != "" {
			m.SideEffects, v.SideEffects = &p.SideEffects, &p.SideEffects
		}
		if theirs := s.create(t, r); !slices.Equal(ours, theirs) || len(ours) == 0 {
			t.Errorf("fastadmit %s\nAPI server %s", strings.Join(ours, "\n          "), strings.Join(theirs, "\n           "))
		}
	}
	rule := func(operations []codec.Operation, groups, versions, resources []string) {
		t.Helper()
		f(func(p *registration.Plugin) {
			p.Rules = []admission.Rule{{Operations: operations, Groups: groups, Versions: versions, Resources: resources}}
		})
	}
	create, core, v1, pods := []codec.Operation{"CREATE"}, []string{""}, []string{"v1"}, []string{"pods"}
	rule([]codec.Operation{"Create"}, core, v1, pods)
	rule([]codec.Operation{"*", "CREATE"}, core, v1, pods)
	rule(create, []string{"*", "apps"}, v1, pods)
	rule(create, core, []string{"*", "v1"}, pods)
	rule(create, core, []string{""}, pods)
	rule(create, core, v1, []string{""})
	rule(create, core, v1, []string{"pods/*", "pods/exec"})
	rule(create, core, v1, []string{"*/exec", "pods/exec"})
	rule(create, core, v1, []string{"*/*", "pods"})
	rule(create, core, v1, []string{"*", "pods"})
	rule(nil, nil, nil, nil)
	f(func(p *registration.Plugin) { p.Rules[0].Scope = "cluster" })
	f(func(p *registration.Plugin) { p.FailurePolicy = "fail" })
	f(func(p *registration.Plugin) { p.SideEffects = admissionregistrationv1.SideEffectClassSome })
	f(func(p *registration.Plugin) { p.SideEffects = admissionregistrationv1.SideEffectClassUnknown })
}
