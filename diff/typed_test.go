package diff_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
)

// typed decodes text into a Pod, changes it, and applies the change to the
// Object.
func typed(t *testing.T, o *codec.Object, text []byte, change func(p *corev1.Pod)) {
	t.Helper()
	o.Reset(text)
	var before, after corev1.Pod
	if err := json.Unmarshal(text, &before); err != nil {
		t.Fatal(err)
	}
	before.DeepCopyInto(&after)
	change(&after)
	if err := diff.Typed(o, &before, &after); err != nil {
		t.Fatal(err)
	}
}

// TestTyped changes a Pod that has fields that corev1.Pod does not know.
func TestTyped(t *testing.T) {
	f := func(text string, change func(p *corev1.Pod), want string, operated ...string) {
		t.Helper()
		var o codec.Object
		typed(t, &o, []byte(text), change)
		if got := o.Root().JSON(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
		if got := operations(t, checkPatch(t, []byte(text), &o)); !slices.Equal(got, operated) {
			t.Errorf("%s: got %q, want %q", text, got, operated)
		}
	}
	const pod = `{"unknown":{"a":[1e0,{}]},"spec":{"containers":[{"name":"c","new":12345678901234567890}],"newer":null}}`
	f(pod, func(*corev1.Pod) {}, pod)
	f(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "i" },
		`{"unknown":{"a":[1e0,{}]},"spec":{"containers":[{"name":"c","new":12345678901234567890,"image":"i"}],"newer":null}}`,
		"add /spec/containers/0/image")
	f(pod, func(p *corev1.Pod) { p.Labels = map[string]string{"a/b": "c"} },
		`{"unknown":{"a":[1e0,{}]},"spec":{"containers":[{"name":"c","new":12345678901234567890}],"newer":null},`+
			`"metadata":{"labels":{"a/b":"c"}}}`,
		"add /metadata")
	f(pod, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d"}) },
		`{"unknown":{"a":[1e0,{}]},"spec":{"containers":[{"name":"c","new":12345678901234567890},{"name":"d",`+
			`"resources":{}}],"newer":null}}`,
		"add /spec/containers/1")
	f(pod, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
	}, `{"unknown":{"a":[1e0,{}]},"spec":{"containers":[{"name":"c","new":12345678901234567890,`+
		`"resources":{"limits":{"cpu":"1"}}}],"newer":null}}`,
		"add /spec/containers/0/resources")
	f(pod, func(p *corev1.Pod) { p.Spec.Containers = nil }, // the type encodes it as null
		`{"unknown":{"a":[1e0,{}]},"spec":{"containers":null,"newer":null}}`, "replace /spec/containers")

	f(`{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}`, func(p *corev1.Pod) {
		p.Spec.Containers = slices.Delete(p.Spec.Containers, 1, 2)
	}, `{"spec":{"containers":[{"name":"a"},{"name":"c"}]}}`, "remove /spec/containers/1")
	f(`{"metadata":{"labels":{"a":"1","b":"2"}}}`, func(p *corev1.Pod) { delete(p.Labels, "a") },
		`{"metadata":{"labels":{"b":"2"}}}`, "remove /metadata/labels/a")
	f(`{"metadata":null,"spec":null}`, func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "n", "m" },
		`{"metadata":{"name":"n"},"spec":{"nodeName":"m"}}`, "replace /metadata", "replace /spec")
	f(`{"spec":{"containers":[]}}`, func(p *corev1.Pod) { p.Spec.SecurityContext = new(corev1.PodSecurityContext) },
		`{"spec":{"containers":[],"securityContext":{}}}`, "add /spec/securityContext")
	f(`{}`, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} },
		`{"spec":{"tolerations":[{"operator":"Exists"}]}}`, "add /spec")
}

// TestTypedElements inserts and removes elements with fields that corev1.Pod
// does not know: every field stays with its element.
func TestTypedElements(t *testing.T) {
	f := func(change func(all []corev1.Container) []corev1.Container, want string, operated ...string) {
		t.Helper()
		text := []byte(`{"spec":{"containers":[{"name":"a","new":1},{"name":"b","new":2},{"name":"c","new":3}]}}`)
		var o codec.Object
		typed(t, &o, text, func(p *corev1.Pod) { p.Spec.Containers = change(p.Spec.Containers) })
		if got := o.Get("spec", "containers").JSON(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := operations(t, checkPatch(t, text, &o)); !slices.Equal(got, operated) {
			t.Errorf("%s: got %q, want %q", want, got, operated)
		}
	}
	type containers = []corev1.Container
	const added = `{"name":"x","resources":{}}`
	x := corev1.Container{Name: "x"}
	f(func(all containers) containers { return slices.Insert(all, 0, x) },
		`[`+added+`,{"name":"a","new":1},{"name":"b","new":2},{"name":"c","new":3}]`, "add /spec/containers/0")
	f(func(all containers) containers { return slices.Insert(all, 1, x, x) },
		`[{"name":"a","new":1},`+added+`,`+added+`,{"name":"b","new":2},{"name":"c","new":3}]`,
		"add /spec/containers/1", "add /spec/containers/2")
	f(func(all containers) containers { return append(all, x) },
		`[{"name":"a","new":1},{"name":"b","new":2},{"name":"c","new":3},`+added+`]`, "add /spec/containers/3")
	f(func(all containers) containers { return all[1:] },
		`[{"name":"b","new":2},{"name":"c","new":3}]`, "remove /spec/containers/0")
	f(func(all containers) containers { return slices.Delete(all, 1, 2) },
		`[{"name":"a","new":1},{"name":"c","new":3}]`, "remove /spec/containers/1")
	f(func(all containers) containers { all[0].Image = "i"; return all[:2] },
		`[{"name":"a","new":1,"image":"i"},{"name":"b","new":2}]`, "add /spec/containers/0/image", "remove /spec/containers/2")
	f(func(containers) containers { return containers{} }, `[]`, "replace /spec/containers")
}

// TestTypedNumbers changes numbers that a float64 cannot represent.
func TestTypedNumbers(t *testing.T) {
	const big = int64(9007199254740993) // 1<<53 + 1
	text := []byte(`{"spec":{"activeDeadlineSeconds":9007199254740992,"terminationGracePeriodSeconds":1}}`)
	var o codec.Object
	typed(t, &o, text, func(p *corev1.Pod) {
		*p.Spec.ActiveDeadlineSeconds = big
		p.Spec.TerminationGracePeriodSeconds = new(big)
	})
	for _, name := range []string{"activeDeadlineSeconds", "terminationGracePeriodSeconds"} {
		if got, _ := o.Get("spec", name).Int64(); got != big {
			t.Errorf("%s: got %d, want %d", name, got, big)
		}
	}
}

// TestTypedCorpus changes every recorded Pod, and encodes each unchanged.
func TestTypedCorpus(t *testing.T) {
	pods := 0
	objects(t, func(name string, text []byte) {
		var o codec.Object
		o.Reset(text)
		if !o.Get("kind").EqualString("Pod") {
			return
		}
		pods++
		typed(t, &o, text, func(*corev1.Pod) {})
		if patch := checkPatch(t, text, &o); len(patch) > 0 {
			t.Errorf("%s: no change, got %s", name, patch)
		}
		var changed corev1.Pod
		typed(t, &o, text, func(p *corev1.Pod) {
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].ImagePullPolicy = "Sometimes"
			}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar"})
			p.Annotations = map[string]string{"a": "b"}
			p.Spec.Volumes = nil
			p.DeepCopyInto(&changed)
		})
		checkPatch(t, text, &o)
		var got corev1.Pod
		if err := json.Unmarshal([]byte(o.Root().JSON()), &got); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(changed)
		if !reflect.DeepEqual(decoded(t, a), decoded(t, b)) {
			t.Errorf("%s: got %s, want %s", name, a, b)
		}
	})
	if pods < 10 {
		t.Errorf("got %d pods", pods)
	}
}

func TestTypedRefuses(t *testing.T) {
	f := func(text string, before, after any, want string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		err := diff.Typed(&o, before, after)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	type object = map[string]any
	f(`{}`, func() {}, 1, "cannot encode func() before the change: json: unsupported type: func()")
	f(`{}`, 1, func() {}, "cannot encode func() after the change: json: unsupported type: func()")
	f(`{}`, object{}, 1, `cannot edit "": cannot replace or remove the whole document`)
	f(`{}`, 1, 2, `cannot edit "": cannot replace or remove the whole document`)
	f(`[1]`, []int{1}, []int{1, 2}, `cannot edit "": cannot replace or remove the whole document`)
	f(`{"a":1}`, object{"a": object{}}, object{"a": object{"b": 1}}, `cannot edit "/a": neither an object nor an array`)
	f(`{"a":1`, object{"a": 1}, object{"a": 2, "b": 3}, `invalid JSON at byte 6`)
}

// TestTypedParents makes changes in fields that only the type's encoding has.
func TestTypedParents(t *testing.T) {
	f := func(text string, before, after any, want string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		if err := diff.Typed(&o, before, after); err != nil || o.Root().JSON() != want {
			t.Errorf("got %s, %v, want %s", o.Root().JSON(), err, want)
		}
	}
	type object = map[string]any
	f(`{}`, object{"a": object{"b": object{}}}, object{"a": object{"b": object{"c": 1}}}, `{"a":{"b":{"c":1}}}`)
	f(`{}`, object{"a": object{"b": 1}}, object{"a": object{"b": 2}}, `{"a":{"b":2}}`)
	f(`{}`, object{"a": object{"b": 1}}, object{"a": object{}}, `{}`)
	f(`{}`, object{"a": object{"b": []int{}}}, object{"a": object{"b": []int{1, 2}}}, `{"a":{"b":[1,2]}}`)
	f(`{"a":[]}`, object{"a": []int{}}, object{"a": []int{1, 2}}, `{"a":[1,2]}`)
	f(`{}`, object{}, object{"a": nil}, `{"a":null}`)
	f(`{"a":[1,2,3]}`, object{"a": []int{1}}, object{"a": []int{2}}, `{"a":[2]}`) // before was another document

	// If the type cannot tell elements apart, those at the beginning stay.
	one := object{"k": 1}
	f(`{"a":[{"k":1,"u":1},{"k":1,"u":2}]}`, object{"a": []any{one, one}}, object{"a": []any{one}}, `{"a":[{"k":1,"u":1}]}`)
	f(`{"a":[{"k":1,"u":1}]}`, object{"a": []any{one}}, object{"a": []any{one, one}}, `{"a":[{"k":1,"u":1},{"k":1}]}`)
}

func TestDocuments(t *testing.T) {
	f := func(before, after, want string) {
		t.Helper()
		patch, err := diff.Documents([]byte(before), []byte(after))
		if err != nil || string(patch) != want {
			t.Errorf("%s, %s: got %s, %v, want %s", before, after, patch, err, want)
			return
		}
		if got := applied(t, []byte(before), patch); !reflect.DeepEqual(decoded(t, got), decoded(t, []byte(after))) {
			t.Errorf("%s, %s: applied %s gives %s", before, after, patch, got)
		}
	}
	f(`{}`, `{}`, "")
	f(`{"a":1}`, ` { "\u0061" : 1 } `, "")
	f(`{"a":1}`, `{"a":2}`, `[{"value":2,"op":"replace","path":"/a"}]`)
	f(`{"a":9007199254740992}`, `{"a":9007199254740993}`, `[{"value":9007199254740993,"op":"replace","path":"/a"}]`)
	f(`{"a":1}`, `{"b":null}`, `[{"op":"remove","path":"/a"},{"value":null,"op":"add","path":"/b"}]`)
	f(`{"a":1}`, `[1]`, `[{"value":[1],"op":"replace","path":""}]`)

	for _, bad := range []string{"", "{", "{}{}", "x"} {
		if patch, err := diff.Documents([]byte(bad), []byte("{}")); err == nil ||
			!strings.HasPrefix(err.Error(), "cannot compare documents: ") {
			t.Errorf("%q: got %s, %v", bad, patch, err)
		}
		if patch, err := diff.Documents([]byte("{}"), []byte(bad)); err == nil {
			t.Errorf("%q: got %s", bad, patch)
		}
	}
}

// TestDocumentsCorpus compares every recorded object with the one after it.
func TestDocumentsCorpus(t *testing.T) {
	var last []byte
	objects(t, func(name string, text []byte) {
		if patch, err := diff.Documents(text, text); err != nil || patch != nil {
			t.Errorf("%s with itself: got %s, %v", name, patch, err)
		}
		if last != nil {
			patch, err := diff.Documents(last, text)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := applied(t, last, patch); !reflect.DeepEqual(decoded(t, got), decoded(t, text)) {
				t.Errorf("%s: got %s, want %s", name, got, text)
			}
		}
		last = text
	})
}
