package policies

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"github.com/fastadmit/fastadmit/internal/policy/expressions"
)

// mutatingFeatures are features that occur more often in some generated policies, in turns.
var mutatingFeatures = []string{"matching", "conditions", "variables", "patches", "configurations", "reinvocation", "actions"}

// mutating generates a policy. With anywhere, it has one mutation of any place of the object. Only
// one, because upstream's next mutation would not get what the Go type cannot have.
func (g *generator) mutating(name string, anywhere bool) (*admissionregistrationv1.MutatingAdmissionPolicy, error) {
	from, err := g.policy(name)
	if err != nil {
		return nil, err
	}
	p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: from.ObjectMeta}
	p.Spec = admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: from.Spec.MatchConstraints, FailurePolicy: from.Spec.FailurePolicy,
		Variables: from.Spec.Variables, MatchConditions: from.Spec.MatchConditions,
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
	}
	withoutDelete(p.Spec.MatchConstraints)
	if anywhere {
		p.Spec.Mutations = []admissionregistrationv1.Mutation{g.mutation(true)}
		return p, nil
	}
	if g.feature == "reinvocation" || g.IntN(2) == 0 {
		p.Spec.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	for len(p.Spec.Mutations) == 0 || g.often("reinvocation", 3) {
		p.Spec.Mutations = append(p.Spec.Mutations, g.mutation(false))
	}
	return p, nil
}

// withoutDelete removes the operation DELETE, which rules of these policies may not have.
func withoutDelete(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	for _, rules := range [...][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			operations := slices.DeleteFunc(slices.Clone(rules[i].Operations), func(o admissionregistrationv1.OperationType) bool {
				return o == admissionregistrationv1.Delete
			})
			if rules[i].Operations = operations; len(operations) == 0 {
				rules[i].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
			}
		}
	}
}

func (g *generator) mutatingDocuments() (*MutatingDocuments, error) {
	documents := new(MutatingDocuments)
	policies, anywhere := 1+g.IntN(3), g.IntN(3) == 0
	if anywhere {
		policies = 1
	}
	for i := range policies {
		p, err := g.mutating(fmt.Sprint("p", i), anywhere)
		if err != nil {
			return nil, err
		}
		documents.Policies = append(documents.Policies, *p)
		for b := 0; b == 0 || !anywhere && g.often("actions", 4); b++ {
			binding := g.binding(fmt.Sprintf("b%d-%d", i, b), p.Name)
			withoutDelete(binding.Spec.MatchResources)
			documents.Bindings = append(documents.Bindings, admissionregistrationv1.MutatingAdmissionPolicyBinding{
				ObjectMeta: binding.ObjectMeta,
				Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: p.Name,
					MatchResources: binding.Spec.MatchResources},
			})
		}
	}
	return documents, nil
}

// always are mutations with the same effect on whatever a policy matches: they change it, or fail.
var always = []string{
	`[JSONPatch{op: "add", path: "/metadata/generateName", value: "matched-"}]`,
	`[JSONPatch{op: "test", path: "/metadata/generateName", value: "nothing has it"}]`,
}

// mutation generates a mutation that compiles.
func (g *generator) mutation(anywhere bool) admissionregistrationv1.Mutation {
	if g.feature == "matching" && g.IntN(2) == 0 {
		return admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: pick(g, always...)},
		}
	}
	if g.feature == "configurations" || g.feature != "patches" && g.IntN(2) == 0 {
		text := g.mutationText(func() string { return g.applyConfiguration(anywhere) },
			accessor{returns: (&patch.ApplyConfigurationCondition{}).ReturnTypes()}, "Object{}")
		return admissionregistrationv1.Mutation{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: text},
		}
	}
	text := g.mutationText(func() string { return g.jsonPatch(anywhere) }, accessor{returns: (&patch.JSONPatchCondition{}).ReturnTypes()},
		"[]")
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: text},
	}
}

// divided matches divisions whose result may be infinite or NaN, which JSON does not have.
// kube-apiserver converts it to an integer that depends on the processor, and fastadmit fails the
// mutation.
const divided = "/ 0.0"

// mutationText generates the text of a mutation that compiles.
func (g *generator) mutationText(generate func() string, a accessor, otherwise string) string {
	options := allVariables
	options.HasPatchTypes = true
	for range 20 {
		if a.text = generate(); !strings.Contains(a.text, divided) && g.compiles(a, options) {
			return a.text
		}
	}
	return otherwise
}

func (g *generator) jsonPatch(anywhere bool) string {
	var operations []string
	for range 1 + g.IntN(3) {
		operations = append(operations, g.operation(anywhere))
	}
	text := "[" + strings.Join(operations, ", ") + "]"
	if g.IntN(4) == 0 {
		text = g.condition() + " ? " + text + " : []"
	}
	return text
}

// collectPointers collects the JSON Pointers to the fields of an object.
func (g *generator) collectPointers(pointer string, v any) {
	if pointer != "" && pointer != "/kind" && pointer != "/apiVersion" {
		g.pointers = append(g.pointers, pointer)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name != "managedFields" {
				g.collectPointers(pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), v[name])
			}
		}
	case []any:
		for i := range min(len(v), 2) {
			g.collectPointers(fmt.Sprint(pointer, "/", i), v[i])
		}
	}
}

// pointer returns a JSON Pointer to a field, in quotes.
func (g *generator) pointer() string {
	if len(g.pointers) == 0 || g.IntN(40) == 0 {
		return pick(g, "'/nope'", "'/metadata/labels/-'", "'/metadata/annotations/a~1b'", "''", "'nope'", "'/metadata//'")
	}
	return strconv.Quote(g.pointers[g.IntN(len(g.pointers))])
}

// operation returns an operation of a JSON Patch. Those at unknown paths may make an object that
// its Go type has in another form, or cannot have.
func (g *generator) operation(anywhere bool) string {
	p, q, v, text := g.pointer(), g.pointer(), g.Expression("", expressions.Any), g.label()
	owner := "Object.metadata.ownerReferences{uid: '1', name: " + text + ", kind: 'b', apiVersion: 'v1'}"
	if !g.release.AtLeast(1, 37) { // kube-apiserver v1.36.3 and older ones panic on a list of Objects
		owner = "{'uid': '1', 'name': " + text + ", 'kind': 'b', 'apiVersion': 'v1'}"
	}
	all := [...]string{
		"JSONPatch{op: 'remove', path: " + p + "}",
		"JSONPatch{op: 'replace', path: " + p + ", value: " + v + "}",
		"JSONPatch{op: 'add', path: " + p + ", value: " + v + "}",
		"JSONPatch{op: 'copy', from: " + p + ", path: " + q + "}",
		"JSONPatch{op: 'move', from: " + p + ", path: " + q + "}",
		"JSONPatch{op: 'replace', path: " + p + "}",
		"JSONPatch{op: 'test', path: " + p + ", value: " + v + "}",
		"JSONPatch{op: 'test', path: '/metadata/name', value: object.metadata.name}",
		"JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: " + text + "}",
		"JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': " + text + "}}",
		"JSONPatch{op: 'add', path: '/metadata/labels', value: Object.metadata.labels{a: 'b'}}",
		"JSONPatch{op: 'nope', path: " + p + "}",
		"JSONPatch{op: 'add', path: '/metadata/finalizers', value: ['example.com/a']}",
		"JSONPatch{op: 'add', path: '/metadata/ownerReferences', value: [" + owner + "]}",
		"JSONPatch{op: 'add', path: '/metadata/finalizers/-', value: 'example.com/b'}",
		"JSONPatch{op: 'add', path: '/metadata/finalizers/0', value: 'example.com/c'}",
		"JSONPatch{op: 'copy', from: '/metadata/finalizers/0', path: '/metadata/labels/d'}",
		"JSONPatch{op: 'add', path: '/nope', value: 1}",
	}
	if !anywhere && g.IntN(2) == 0 {
		return g.emptying()
	}
	if !anywhere {
		return all[6+g.IntN(len(all)-6)]
	}
	return all[g.IntN(len(all))]
}

// emptying returns an operation that leaves something empty, or that fails if the next mutation does
// not find what an earlier one has left. The paths are those of any object, or of the recorded kinds;
// other kinds do not have the fields.
func (g *generator) emptying() string {
	list := pick(g, "'/metadata/finalizers'", "'/metadata/ownerReferences'", "'/spec/initContainers'", "'/spec/tolerations'",
		"'/spec/template/spec/volumes'", "'/spec/template/spec/imagePullSecrets'")
	object := pick(g, "'/metadata/annotations'", "'/metadata/labels'", "'/spec/nodeSelector'", "'/spec/template/spec/nodeSelector'",
		"'/data'",
		"'/spec/selector'")
	return pick(g,
		"JSONPatch{op: 'add', path: "+list+", value: []}",
		"JSONPatch{op: 'add', path: "+object+", value: {}}",
		"JSONPatch{op: 'add', path: "+pick(g, list, object)+", value: null}",
		"JSONPatch{op: 'remove', path: "+pick(g, list, object)+"}",
		"JSONPatch{op: 'add', path: "+object+" + '/x', value: 'eA=='}",
		"JSONPatch{op: 'remove', path: "+list+" + '/0'}",
		"JSONPatch{op: 'add', path: '/metadata/labels/seen', value: string([has(object.metadata.finalizers), "+
			"has(object.metadata.annotations), "+
			"has(object.spec) && has(object.spec.tolerations)].filter(b, b).size())}",
	)
}

// label returns an expression for the value of a label. It is a string, because the Go type has no
// other type, and kube-apiserver fails if it cannot decode the object, but fastadmit does not.
func (g *generator) label() string {
	return pick(g, "'x'", "object.metadata.name", "request.operation.lowerAscii()", "string("+g.Expression("", expressions.String)+")")
}

func (g *generator) applyConfiguration(anywhere bool) string {
	if g.object != nil && g.IntN(2) == 0 {
		return g.configured("Object", g.object, anywhere)
	}
	text := g.label()
	return pick(g,
		"Object{metadata: Object.metadata{labels: {'a': "+text+"}}}",
		"Object{metadata: Object.metadata{annotations: Object.metadata.annotations{a: 'x'}, finalizers: ['example.com/a']}}",
		"Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "+
			"'Always'})}}",
		"Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'proxy', image: 'proxy', restartPolicy: 'Always'}]}}",
		"Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'a': 'b'}}}}}",
		"Object{spec: Object.spec{replicas: 3}}",
		"Object{spec: Object.spec{replicas: object.spec.replicas + 1}}",
		"Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}",
		"Object{spec: Object.spec{containers: [Object.spec.containers{name: 'x', args: ['a']}]}}",
		"Object{spec: Object.spec{containers: [Object.spec.containers{name: 'x', ports: [Object.spec.containers.ports{containerPort: "+
			"80, protocol: 'TCP'}],"+
			" env: [Object.spec.containers.env{name: 'A', value: 'b'}]}]}}",
		"Object{spec: Object.spec{nope: 1}}",
		"Object{spec: Object.metadata{name: 'x'}}",
		"Object{data: Object.data{a: 'YQ=='}}", // also valid for a Secret
		"Object{data: {'a': 'Yg=='}}",
		"Object{}",
		"Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: '1', name: 'a', kind: 'b', "+
			"apiVersion: 'v1'}]}}",
		"Object{kind: 'Other', apiVersion: 'v7'}",
	)
}

// fieldName matches names that an Object may have as fields.
var fieldName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)

// configured returns an expression that sets some of a value's fields to their current value, but
// labels, and with anywhere all fields, to any value.
func (g *generator) configured(typeName string, v any, anywhere bool) string {
	switch v := v.(type) {
	case map[string]any:
		var members []string
		isObject := !slices.ContainsFunc(slices.Collect(maps.Keys(v)), func(name string) bool { return !fieldName.MatchString(name) })
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name == "managedFields" || name == "namespace" || g.IntN(1+len(v)) > 1 && name != "name" {
				continue
			}
			memberType := typeName
			if isObject {
				memberType += "." + name
			}
			member := g.configured(memberType, v[name], anywhere)
			if isObject {
				members = append(members, name+": "+member)
			} else {
				members = append(members, strconv.Quote(name)+": dyn("+member+")")
			}
		}
		if isObject {
			return typeName + "{" + strings.Join(members, ", ") + "}"
		}
		return "{" + strings.Join(members, ", ") + "}"
	case []any:
		var elements []string
		for i := range v { // upstream converts an empty list to nil, which is null in JSON
			if len(elements) == 0 || g.IntN(3) > 0 {
				elements = append(elements, "dyn("+g.configured(typeName, v[i], anywhere)+")")
			}
		}
		return "[" + strings.Join(elements, ", ") + "]"
	}
	text, err := json.Marshal(v)
	switch {
	case anywhere && g.IntN(6) == 0:
		return g.Expression("", expressions.Any)
	case err != nil || anywhere && g.IntN(4) == 0:
		return pick(g, "'x'", "7", "true", "null", "1.5", "object.metadata.name")
	case strings.HasSuffix(typeName, ".labels") || strings.HasSuffix(typeName, ".annotations"):
		return g.label()
	}
	return string(text)
}
