package behind

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// A generator makes scenarios.
type generator struct {
	*rand.Rand
	objects []*unstructured.Unstructured // of ../testdata
	// scenarios are all scenarios of the test.
	scenarios iter.Seq[*scenario]
	// wanted are texts that must occur in some answer.
	wanted []string
}

func newGenerator(t *testing.T) *generator {
	g := &generator{Rand: seed.Rand(t)}
	files, err := filepath.Glob("../testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		if filepath.Base(file) == "rbac.yaml" { // access rights, no cases
			continue
		}
		cases, err := tables.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range cases {
			object := cases[i].New()
			if cases[i].Subresource != "" || cases[i].Operation != "" || object.GetAPIVersion() == "" {
				continue
			}
			unstructured.RemoveNestedField(object.Object, "metadata", "uid")
			unstructured.RemoveNestedField(object.Object, "metadata", "resourceVersion")
			unstructured.RemoveNestedField(object.Object, "metadata", "generateName")
			object.SetNamespace("default")
			object.SetName("o")
			if text := fmt.Sprint(object.Object); !seen[text] {
				seen[text] = true
				g.objects = append(g.objects, object)
			}
		}
	}
	return g
}

// parse reads a manifest.
func parse(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func (g *generator) in(n int) bool { return g.IntN(n) == 0 }

func (g *generator) pick(of ...string) string { return of[g.IntN(len(of))] }

// manifests cover everything that controllerruntime does.
const manifests = `
- {kind: Pod, labels: {behind.example.com/sidecar: a, behind.example.com/keep: a}, spec: {containers: [{name: c, image: "i:v1"}]}}
- {kind: Pod, annotations: {behind.example.com/default: refuse}, spec: {containers: [{name: c, image: "i:v1"}]}}
- {kind: Pod, spec: {containers: [{name: c, image: i}, {name: d, image: j}]}}
- {kind: ConfigMap, annotations: {behind.example.com/default: refuse}}
- {kind: ConfigMap, annotations: {behind.example.com/default: panic}}
- {kind: ConfigMap, annotations: {behind.example.com/default: panic}, labels: {behind.example.com/skip: a}}
- {kind: ConfigMap, data: {password: p, other: o}}
- kind: ConfigMap
  labels: {behind.example.com/answered: "true"}
  annotations: {behind.example.com/mutate.create: '{"allowed":false}'}
- kind: ConfigMap
  labels: {behind.example.com/answered: "true"}
  annotations:
    behind.example.com/validate.delete: '{"allowed":false,"status":{"code":418,"reason":"Teapot","message":"answered"},` +
	`"warnings":["deletion"]}'
- kind: ConfigMap
  labels: {behind.example.com/answered: "true"}
  annotations: {behind.example.com/mutate.create: '{"allowed":true,"jsonPatch":[{"op":"replace","path":"/missing","value":1}]}'}
- kind: ConfigMap
  labels: {behind.example.com/answered: "true"}
  annotations: {behind.example.com/mutate.create: 'no JSON'}
- kind: Deployment
  spec: {replicas: 3, selector: {matchLabels: {a: a}}, template: {metadata: {labels: {a: a}}, spec: {containers: [{name: c, image: i}]}}}
- kind: Deployment
  spec: {replicas: 20, selector: {matchLabels: {a: a}}, template: {metadata: {labels: {a: a}}, spec: {containers: [{name: c, image: i}]}}}
`

// fixed returns scenarios for such manifests. Each object is also updated and scaled.
func fixed(t *testing.T, manifests string) []*scenario {
	t.Helper()
	var all []struct {
		Kind                string
		Labels, Annotations map[string]string
		Spec, Data          map[string]any
	}
	if err := yaml.UnmarshalStrict([]byte(manifests), &all); err != nil {
		t.Fatal(err)
	}
	var scenarios []*scenario
	for _, m := range all {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": m.Kind}}
		if m.Kind == "Deployment" {
			object.SetAPIVersion("apps/v1")
		}
		if m.Kind != "Namespace" {
			object.SetNamespace("default")
		}
		object.SetLabels(m.Labels)
		object.SetAnnotations(m.Annotations)
		if m.Spec != nil {
			object.Object["spec"] = m.Spec
		}
		if m.Data != nil {
			object.Object["data"] = m.Data
		}
		scenarios = append(scenarios, &scenario{about: "fixed", object: object, steps: []step{
			create(true), create(false),
			patch(types.MergePatchType, true, `{"metadata":{"labels":{"behind.example.com/tier":"gold"}}}`),
			patch(types.MergePatchType, false, `{"spec":{"replicas":4}}`),
			patch(types.MergePatchType, false, `{"spec":{"replicas":5}}`, "scale"),
			update(false, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) }),
			remove(true), remove(false),
			patch(types.MergePatchType, false, freed), remove(false),
		}})
	}
	return scenarios
}

// freed is a patch that removes everything that keeps an object from being deleted.
const freed = `{"metadata":{"labels":{"` + prefix + `keep":null,"` + prefix + `answered":null},"annotations":null,"finalizers":null},` +
	`"spec":{"replicas":0}}`

// forControllerRuntime adds scenarios for what controllerruntime does.
func (g *generator) forControllerRuntime(t *testing.T) {
	g.wanted = []string{"has no tag", "tier was", "keep this pod", "are too many", "scale it down first", "no default for this pod",
		"defaults are out",
		"panic: this one", "passwords belong into Secrets", "has no limits", "generation 1 becomes 2",
		`behind.example.com/dry-run":"true"`, "sidecar:v1",
		"answered", "denied the request without explanation", `"code":418`}
	g.all(fixed(t, manifests), g.answered)
}

// all adds the fixed scenarios, those of the objects of Kubernetes' tests, and generated ones. Some
// objects are changed first.
func (g *generator) all(fixed []*scenario, change func(*unstructured.Unstructured)) {
	g.scenarios = func(yield func(*scenario) bool) {
		n := 0
		for _, sc := range fixed {
			n++
			sc.object.SetName(fmt.Sprint("o-", n))
			if !yield(sc) {
				return
			}
		}
		next := func(object *unstructured.Unstructured, about string) bool {
			n++
			object.SetName(fmt.Sprint("o-", n))
			if g.in(2) {
				change(object)
			}
			return yield(&scenario{about: fmt.Sprintf("%s %s (%s)", object.GetKind(), object.GetName(), about), object: object,
				steps: g.steps(object)})
		}
		for i, object := range g.objects {
			// The full run has all of them, each other run some.
			if g.in(tally.Cases(5, 1)) && !next(object.DeepCopy(), fmt.Sprint("testdata ", i)) {
				return
			}
		}
		for range tally.Cases(80, 1200) {
			if !next(g.object(), "generated") {
				return
			}
		}
	}
}

// steps returns requests for an object. The last one deletes it.
func (g *generator) steps(object *unstructured.Unstructured) []step {
	all := []step{create(g.in(3)), create(false)}
	for range g.IntN(4) {
		dry := g.in(3)
		label := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, prefix+g.pick("tier", "keep", "skip", "answered", "other"),
			g.pick("", "true", "b"))
		switch g.IntN(7) {
		case 0:
			all = append(all, patch(types.MergePatchType, dry, label))
		case 1:
			all = append(all, patch(types.StrategicMergePatchType, dry, label))
		case 2:
			all = append(all,
				patch(types.JSONPatchType, dry, `[{"op":"add","path":"/metadata/annotations","value":{"a/b~c":"\u00e9\"<"}}]`))
		case 3:
			all = append(all, patch(types.ApplyPatchType, dry, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,%s`, object.GetAPIVersion(),
				object.GetKind(), label[1:])))
		case 4:
			value := g.pick("", "true", "b")
			all = append(all, update(dry, func(u *unstructured.Unstructured) {
				labels := u.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}
				labels[prefix+"tier"] = value
				u.SetLabels(labels)
			}))
		case 5:
			all = append(all, patch(types.MergePatchType, dry, g.pick(`{"spec":{"replicas":3}}`, `{"spec":{"replicas":20}}`,
				`{"data":{"password":"p"}}`,
				`{"spec":{"containers":[{"name":"c","image":"other:v2"}]}}`, `{"metadata":{"annotations":{"`+prefix+
					`default":"refuse"}}}`, `{}`)))
		case 6:
			all = append(all,
				patch(types.MergePatchType, dry, g.pick(`{"spec":{"replicas":11}}`, `{"status":{"replicas":1,"reason":"x"}}`, label),
					g.pick("status", "scale", "ephemeralcontainers")))
		}
	}
	all = append(all, remove(g.in(3)))
	if g.in(2) {
		all = append(all, remove(false))
	}
	// Remove what keeps it from being deleted.
	return append(all, patch(types.MergePatchType, false, freed), remove(false))
}

// object returns a Pod, a Deployment or a ConfigMap with the fields that the webhooks read.
func (g *generator) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1"}}
	labels, annotations := map[string]string{}, map[string]string{}
	for _, name := range []string{"tier", "keep", "skip", "sidecar"} {
		if g.in(4) {
			labels[prefix+name] = g.pick("a", "b")
		}
	}
	if g.in(6) {
		annotations[prefix+"default"] = g.pick("refuse", "panic", "panic", "other")
	}
	if g.in(4) {
		annotations[g.pick("a/b", "a.b", "x~y")] = g.pick("", "\u2028\u00e9\U0001f600", `{"a":"\\"}`, strings.Repeat("long ", 500))
	}
	kind := g.pick("Pod", "Pod", "Deployment", "ConfigMap")
	object.SetKind(kind)
	switch kind {
	case "Pod":
		object.Object["spec"] = g.podSpec()
	case "Deployment":
		object.SetAPIVersion("apps/v1")
		match := map[string]any{"app": "a"}
		object.Object["spec"] = map[string]any{
			"replicas": int64(g.IntN(15)), "selector": map[string]any{"matchLabels": match},
			"template": map[string]any{"metadata": map[string]any{"labels": match}, "spec": g.podSpec()},
		}
	case "ConfigMap":
		data := map[string]any{}
		for range g.IntN(4) {
			data[g.pick("a", "b", "c.d", "password")] = g.pick("", "value", "\u00e9\n\t\"", strings.Repeat("x", 4000))
		}
		object.Object["data"] = data
		if g.in(4) {
			object.Object["immutable"] = g.in(2)
		}
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	object.SetNamespace("default")
	return object
}

func (g *generator) podSpec() map[string]any {
	var containers []any
	for i := range 1 + g.IntN(3) {
		c := map[string]any{"name": fmt.Sprint("c", i), "image": g.pick("i:v1", "i:v2", "i:v3", "i", "registry.example.com/i@sha256:1")}
		if g.in(2) {
			c["resources"] = map[string]any{"limits": map[string]any{"cpu": g.pick("1", "0.5", "100m", "1e3"),
				"memory": g.pick("1Gi", "0.5Gi", "1e9")}}
		}
		if g.in(3) {
			c["env"] = []any{map[string]any{"name": "A", "value": g.pick("", "b", "$(X)")}, map[string]any{"name": "B"}}
		}
		if g.in(4) {
			c["unknown"] = true // a field that Kubernetes does not have
		}
		containers = append(containers, c)
	}
	spec := map[string]any{"containers": containers}
	if g.in(3) {
		spec["securityContext"] = map[string]any{"runAsUser": int64(g.IntN(3))}
	}
	if g.in(5) {
		spec["tolerations"] = []any{map[string]any{"key": "a", "operator": "Exists"}}
	}
	return spec
}

// answered makes the object ask for an answer.
func (g *generator) answered(object *unstructured.Unstructured) {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[prefix+"answered"] = "true"
	for _, phase := range []string{"mutate", "validate"} {
		for _, operation := range []string{"create", "update", "delete"} {
			if !g.in(2) {
				continue
			}
			text, err := json.Marshal(g.response(phase))
			if err != nil {
				panic(err) // it consists of strings, numbers and booleans
			}
			annotations[prefix+phase+"."+operation] = string(text)
		}
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
}

// response is an AdmissionResponse.
func (g *generator) response(phase string) map[string]any {
	r := map[string]any{"allowed": !g.in(3)}
	if g.in(2) {
		status := map[string]any{}
		possible := map[string][]any{
			"code": {200, 400, 403, 404, 409, 418, 422, 500, 599, -1}, "status": {"Success", "Failure", ""},
			"reason": {"", "Forbidden", "NotFound", "Invalid", "Whatever it is"}, "message": {"", "answered", "two\nlines \u00e9 <&>",
				strings.Repeat("m", 3000)},
			"details": {
				map[string]any{}, map[string]any{"name": "n", "group": "g", "kind": "k", "uid": "u"},
				map[string]any{"causes": []any{map[string]any{"reason": "FieldValueInvalid", "message": "m", "field": "spec.a[0]"},
					map[string]any{}}},
			},
		}
		for _, field := range slices.Sorted(maps.Keys(possible)) {
			if values := possible[field]; g.in(2) {
				status[field] = values[g.IntN(len(values))]
			}
		}
		r["status"] = status
	}
	if g.in(3) {
		r["warnings"] = []any{g.pick("", "a warning", "accents \u00e9 and \"quotes\"", strings.Repeat("w", 300)),
			g.pick("second", "a warning")}
	}
	if g.in(3) {
		r["auditAnnotations"] = map[string]any{g.pick("a", "b.c", "", "d/e"): g.pick("", "text")}
	}
	if phase == "mutate" && g.in(2) || g.in(10) {
		r["jsonPatch"] = g.patch()
	}
	return r
}

// patch returns a JSON patch of metadata, which may be impossible to apply.
func (g *generator) patch() []any {
	var all []any
	for range g.IntN(4) {
		path := g.pick("/metadata/labels/patched", "/metadata/annotations/patched",
			"/metadata/labels/"+strings.ReplaceAll(prefix, "/", "~1")+"keep",
			"/metadata/labels/missing/deep", "/metadata/finalizers", "/metadata/annotations")
		op := map[string]any{"op": g.pick("add", "add", "add", "replace", "remove", "test", "copy", "nothing"), "path": path}
		if op["op"] == "copy" {
			// Replace a string by a string: a value of the wrong type would fail at another place
			// behind fastadmit.
			op["from"], op["path"] = "/metadata/name", "/metadata/labels/patched"
		}
		switch {
		case op["op"] == "copy":
		case strings.HasSuffix(path, "finalizers"):
			op["value"] = []any{"example.com/f"}
		case strings.HasSuffix(path, "annotations"):
			op["value"] = map[string]any{"only": "this"}
		default:
			op["value"] = g.pick("v", "w", "")
		}
		all = append(all, op)
	}
	return all
}
