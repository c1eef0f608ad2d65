package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// served is an API server that has a kind for each resource, whose schema has a field
// replicas in spec.
type served struct {
	kinds    map[schema.GroupVersionResource]string
	singular map[string]string // the names that discovery has, by resource
	err      error
	schemas  error // of schemas, not of resources
}

// SchemaPaths implements schemas.Documents.
func (s *served) SchemaPaths(context.Context) (map[schema.GroupVersion]string, error) {
	paths := make(map[schema.GroupVersion]string)
	for r := range s.kinds {
		paths[r.GroupVersion()] = r.GroupVersion().String()
	}
	return paths, errors.Join(s.err, s.schemas)
}

// Schema implements schemas.Documents.
func (s *served) Schema(_ context.Context, path string) ([]byte, error) {
	var all []string
	for r, kind := range s.kinds {
		if r.GroupVersion().String() == path {
			all = append(all, fmt.Sprintf(`%q:{"type":"object","x-kubernetes-group-version-kind":[{"group":%q,"version":%q,"kind":%q}],`+
				`"properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}`, kind, r.Group, r.Version, kind))
		}
	}
	return []byte(`{"components":{"schemas":{` + strings.Join(all, ",") + `}}}`), s.err
}

// Resources implements resourceLists.
func (s *served) Resources(_ context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	var list *metav1.APIResourceList
	for r, kind := range s.kinds {
		if r.GroupVersion() == version {
			if list == nil {
				list = new(metav1.APIResourceList)
			}
			list.APIResources = append(list.APIResources,
				metav1.APIResource{Name: r.Resource, SingularName: s.singular[r.Resource], Kind: kind},
				metav1.APIResource{Name: r.Resource + "/status", SingularName: "status", Kind: "Status"})
		}
	}
	return list, s.err
}

func (s *served) checker() *typeChecker {
	return newTypeChecker(schemas.New(s), s)
}

// workloads returns an API server that has Deployments in two versions, DaemonSets, Jobs and ConfigMaps.
func workloads() *served {
	apps, batch := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "batch", Version: "v1"}
	apps2 := schema.GroupVersion{Group: "apps", Version: "v2"}
	return &served{kinds: map[schema.GroupVersionResource]string{
		apps.WithResource("deployments"): "Deployment", apps.WithResource("daemonsets"): "DaemonSet", batch.WithResource("jobs"): "Job",
		apps2.WithResource("deployments"): "Deployment", {Version: "v1", Resource: "configmaps"}: "ConfigMap",
	}, singular: map[string]string{"jobs": "task"}}
}

// policyWith returns a policy with rules that match, and with more fields in its spec.
func policyWith(t *testing.T, rules, more string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	p := new(admissionregistrationv1.ValidatingAdmissionPolicy)
	if err := json.Unmarshal([]byte(`{"spec":{"matchConstraints":{"resourceRules":[`+rules+`]},`+more+`}}`), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// ruleOf returns a rule. groups, versions and resources are quoted, with commas between them.
func ruleOf(groups, versions, resources string) string {
	return fmt.Sprintf(`{"apiGroups":[%s],"apiVersions":[%s],"resources":[%s]}`, groups, versions, resources)
}

func validationOf(expression string) string {
	return fmt.Sprintf(`"validations":[{"expression":%q}]`, expression)
}

const paramMaps = `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`

// TestTypeChecking has upstream's kinds of cases (k8s.io/apiserver pkg/admission/plugin/policy/validating
// typechecking_test.go).
func TestTypeChecking(t *testing.T) {
	server, rule, of := workloads(), ruleOf, validationOf
	f := func(rules, more string, want ...string) {
		t.Helper()
		warnings, err := server.checker().checkTypes(t.Context(), policyWith(t, rules, more))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range warnings {
			for part := range strings.SplitSeq(w.Warning, "\n\n") {
				line, _, _ := strings.Cut(part, "\n")
				got = append(got, w.FieldRef+": "+line)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s with %s\ngot  %q\nwant %q", more, rules, got, want)
		}
	}
	deployments := rule(`"apps"`, `"v1"`, `"deployments"`)
	const expression, undefined = "spec.validations[0].expression: ", "ERROR: <input>:1:7: undefined field 'foo'"
	f(deployments, of("object.spec.replicas > 1"))
	f(deployments, of("object.foo > 1"), expression+"apps/v1, Kind=Deployment: "+undefined)
	f(deployments, of("oldObject.spec.replicas == 'a'"),
		expression+"apps/v1, Kind=Deployment: ERROR: <input>:1:25: found no matching overload for '_==_' applied to '(int, string)'")
	f(deployments, `"validations":[{"expression":"true"},{"expression":"true","messageExpression":"object.foo"}]`,
		"spec.validations[1].messageExpression: apps/v1, Kind=Deployment: "+undefined)
	f(rule(`"batch","apps"`, `"v1"`, `"jobs","deployments","daemonsets"`), of("object.foo > 1"),
		expression+"apps/v1, Kind=DaemonSet: "+undefined, expression+"apps/v1, Kind=Deployment: "+undefined,
		expression+"batch/v1, Kind=Job: "+undefined)
	f(rule(`""`, `"v1"`, `"jobs"`), of("object.foo > 1"), expression+"batch/v1, Kind=Job: "+undefined) // any group
	f(deployments+","+deployments, of("object.foo > 1"), expression+"apps/v1, Kind=Deployment: "+undefined)
	f(deployments+","+rule(`"batch"`, `"v1"`, `"jobs"`)+","+rule(`"apps"`, `"v1"`, `"daemonsets"`),
		of("object.foo > 1"), // in a fixed order
		expression+"apps/v1, Kind=DaemonSet: "+undefined, expression+"apps/v1, Kind=Deployment: "+undefined,
		expression+"batch/v1, Kind=Job: "+undefined)
	f(rule(`"apps"`, `"v1"`, `"daemonset"`), of("object.foo > 1"), // the guessed singular
		expression+"apps/v1, Kind=DaemonSet: "+undefined)
	f(rule(`"batch"`, `"v1"`, `"task"`), of("object.foo > 1"), expression+"batch/v1, Kind=Job: "+undefined) // the singular of discovery
	for _, none := range []string{
		rule(`"batch"`, `"v1"`, `"job"`), rule(`"apps"`, `"v1"`, `"status"`),
		rule(`"*"`, `"v1"`, `"deployments"`), rule(`"apps"`, `"*"`, `"deployments"`), rule(`"apps"`, `"v1"`, `"*"`),
		rule(`"apps"`, `"v1"`, `"deployments/status"`),
		rule(`"apps"`, `"v3"`, `"deployments"`), rule(`"none"`, `"v1"`, `"deployments"`), rule(`"apps"`, `"v1"`, `"others"`),
	} {
		f(none, of("object.foo > 1"))
	}
	f(deployments+","+rule(`"batch"`, `"v1"`, `"*"`), of("object.foo > 1"), expression+"apps/v1, Kind=Deployment: "+undefined)
	f(deployments, paramMaps+of("params.spec.replicas > 1"))
	f(deployments, paramMaps+of("params.foo > 1"), expression+"apps/v1, Kind=Deployment: "+undefined)
	f(deployments, `"paramKind":{"apiVersion":"v1","kind":"Unknown"},`+of("params.foo > 1"))
	for _, none := range []string{
		"", `"paramKind":{"apiVersion":"a/b/c","kind":"ConfigMap"},`, `"paramKind":{"apiVersion":"","kind":""},`,
	} {
		f(deployments, none+of("params.foo > 1"), expression+
			"apps/v1, Kind=Deployment: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')")
	}
	f(rule(`"apps"`, `"v2","v1"`, `"deployments"`)+","+deployments, of("object.foo > 1"), // in the order of version names
		expression+"apps/v1, Kind=Deployment: "+undefined, expression+"apps/v2, Kind=Deployment: "+undefined)
	const variables = `"variables":[{"name":"a","expression":"object.spec.replicas"}],`
	f(deployments, variables+of("variables.a > 1"))
	f(deployments, variables+of("variables.b > 1"), expression+"apps/v1, Kind=Deployment: ERROR: <input>:1:10: undefined field 'b'")
}

// TestTypeCheckingFails tests an API server that does not answer, reviews that end, and a type checker that
// panics.
func TestTypeCheckingFails(t *testing.T) {
	server, unavailable := workloads(), errors.New("it does not answer")
	for _, more := range []string{validationOf("true"), paramMaps + validationOf("true")} {
		p := policyWith(t, ruleOf(`"apps"`, `"v1"`, `"deployments"`), more)
		without := &served{kinds: server.kinds, err: unavailable}
		if warnings, err := without.checker().checkTypes(t.Context(), p); err == nil || warnings != nil {
			t.Errorf("got %v, %v, want an error", warnings, err)
		}
		withoutSchemas := &served{kinds: server.kinds, schemas: unavailable}
		if warnings, err := withoutSchemas.checker().checkTypes(t.Context(), p); err == nil || warnings != nil {
			t.Errorf("got %v, %v, want an error of the schema", warnings, err)
		}
		p.Spec.MatchConstraints.ResourceRules[0].APIGroups = []string{""}
		if _, err := (&served{err: unavailable}).checker().checkTypes(t.Context(), p); err == nil {
			t.Error("got no error of the group that is any")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := server.checker().checkTypes(ctx, p); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want it to end", err)
		}
	}
	if kinds, err := server.checker().typesToCheck(t.Context(), new(admissionregistrationv1.ValidatingAdmissionPolicy)); kinds != nil ||
		err != nil {
		t.Errorf("got %v, %v for nothing", kinds, err)
	}
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	broken := []checkedKind{{deployment, new(cel.TypeChecker)}} // which panics
	if got, want := warningOf(broken, "true"), "apps/v1, Kind=Deployment: type checking error: "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %s", got, want)
	}
}

// counted counts what is asked of an API server.
type counted struct {
	*served
	lists, documents int
}

// Resources implements resourceLists.
func (c *counted) Resources(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	c.lists++
	return c.served.Resources(ctx, version)
}

// Schema implements schemas.Documents.
func (c *counted) Schema(ctx context.Context, path string) ([]byte, error) {
	c.documents++
	return c.served.Schema(ctx, path)
}

// TestTypesKept has one checker check many policies. It asks for the resources of each group version
// once, and for a schema if it does not keep the type.
func TestTypesKept(t *testing.T) {
	server := &counted{served: workloads()}
	for i := range declTypesMax {
		server.kinds[schema.GroupVersionResource{Version: "v1", Resource: fmt.Sprint("r", i)}] = fmt.Sprint("Kind", i)
	}
	checker := newTypeChecker(schemas.New(server), server)
	f := func(resource string, lists, documents int) {
		t.Helper()
		for _, expression := range []string{"object.spec.replicas > 1", "object.spec.replica > 1"} {
			p := policyWith(t, ruleOf(`""`, `"v1"`, `"`+resource+`"`), validationOf(expression))
			warnings, err := checker.checkTypes(t.Context(), p)
			if wrong := strings.Contains(expression, "replica "); err != nil || (len(warnings) == 1) != wrong {
				t.Errorf("%s of %s: got %v, %v", expression, resource, warnings, err)
			}
		}
		if server.lists != lists || server.documents != documents {
			t.Errorf("%s: asked for %d lists and %d documents, want %d and %d", resource, server.lists, server.documents, lists, documents)
		}
	}
	const versions = 3 // v1 of "", apps and batch
	f("configmaps", versions, 1)
	for i := range declTypesMax {
		f(fmt.Sprint("r", i), versions, i+2)
	}
	f("configmaps", versions, declTypesMax+2) // there was no more room for it
}

// TestTypesToCheck expects only the first types if there are too many.
func TestTypesToCheck(t *testing.T) {
	server := &served{kinds: make(map[schema.GroupVersionResource]string)}
	var want []string
	for i := range checkedTypesMax + 2 {
		group := fmt.Sprintf("g%02d", i)
		server.kinds[schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}] = "Thing"
		server.kinds[schema.GroupVersionResource{Group: group, Version: "v2", Resource: "things"}] = "Thing"
		if i < checkedTypesMax {
			want = append(want, group+"/v1, Kind=Thing")
		}
	}
	resource := "things"
	f := func(groups, want []string) {
		t.Helper()
		rules := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Rule: admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}}
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
		}}
		kinds, err := server.checker().typesToCheck(t.Context(), p)
		var got []string
		for _, kind := range kinds {
			got = append(got, kind.String())
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %s, %v, want %s", groups, got, err, want)
		}
	}
	f([]string{""}, want)
	var all []string
	for r := range maps.Keys(server.kinds) {
		all = append(all, r.Group)
	}
	f(slices.Compact(slices.Sorted(slices.Values(all))), want)
	f([]string{"g11", "g03", "g10"}, []string{"g03/v1, Kind=Thing", "g10/v1, Kind=Thing", "g11/v1, Kind=Thing"})
	resource = "thinglists" // as there
	f([]string{"g03"}, []string{"g03/v1, Kind=ThingList"})
	resource = "status" // of a thing
	f([]string{"g03"}, nil)
}
