package tolerations

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// shorthand returns the toleration for a name in upstream's test
// (pkg/util/tolerations/tolerations_test.go), which has the key, the value, the effect and
// the seconds.
func shorthand(name string) corev1.Toleration {
	t := corev1.Toleration{Operator: corev1.TolerationOpExists}
	for _, part := range strings.Split(name, "-") {
		switch part {
		case "all":
		case "nosched":
			t.Effect = corev1.TaintEffectNoSchedule
		case "prefnosched":
			t.Effect = corev1.TaintEffectPreferNoSchedule
		case "noexec":
			t.Effect = corev1.TaintEffectNoExecute
		case "10":
			t.TolerationSeconds = new(int64(10))
		case "0":
			t.TolerationSeconds = new(int64(0))
		case "bar", "baz":
			t.Operator, t.Value = corev1.TolerationOpEqual, part
		default:
			t.Key = part
		}
	}
	return t
}

func list(names string) []corev1.Toleration {
	var all []corev1.Toleration
	for _, name := range strings.Fields(names) {
		all = append(all, shorthand(name))
	}
	return all
}

func covers(one *Toleration, other string) bool {
	t := Of(&list(other)[0])
	return one.Covers(&t)
}

const everything = "all all-nosched all-noexec foo foo-bar foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched faz-baz-nosched " +
	"foo-prefnosched foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10"

// TestCovers has upstream's cases of which tolerations cover each other.
func TestCovers(t *testing.T) {
	f := func(name, covered string) {
		t.Helper()
		one := Of(&list(name)[0])
		for _, other := range strings.Fields(everything) {
			want := other == name || strings.Contains(" "+covered+" ", " "+other+" ")
			if got := covers(&one, other); got != want {
				t.Errorf("%s covers %s: got %v", name, other, got)
			}
		}
	}
	f("all", everything)
	f("all-nosched", "foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched faz-baz-nosched")
	f("all-noexec", "foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10")
	f("foo", "foo-bar foo-nosched foo-bar-nosched foo-baz-nosched foo-prefnosched foo-noexec foo-bar-noexec foo-noexec-10 "+
		"foo-noexec-0 foo-bar-noexec-10")
	f("foo-bar", "foo-bar-nosched foo-bar-noexec foo-bar-noexec-10")
	f("foo-nosched", "foo-bar-nosched foo-baz-nosched")
	f("foo-bar-nosched", "")
	f("faz-nosched", "faz-baz-nosched")
	f("faz-baz-nosched", "")
	f("foo-prefnosched", "")
	f("foo-noexec", "foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10")
	f("foo-bar-noexec", "foo-bar-noexec-10")
	f("foo-noexec-10", "foo-noexec-0 foo-bar-noexec-10")
	f("foo-noexec-0", "")
	f("foo-bar-noexec-10", "")
}

// TestMerge has upstream's own cases.
func TestMerge(t *testing.T) {
	f := func(a, b, want string) {
		t.Helper()
		pod, err := json.Marshal(corev1.Pod{Spec: corev1.PodSpec{Tolerations: list(a)}})
		if err != nil {
			t.Fatal(err)
		}
		given, err := NewGiven(list(b))
		if err != nil {
			t.Fatal(err)
		}
		var object codec.Object
		object.Reset(pod)
		if err := Merge(t.Context(), &object, given); err != nil || object.Err() != nil {
			t.Fatal(err, object.Err())
		}
		var got []corev1.Toleration
		if err := json.Unmarshal([]byte(object.Get("spec", "tolerations").JSON()), &got); err != nil {
			t.Fatal(err)
		}
		if want := list(want); !reflect.DeepEqual(got, want) {
			t.Errorf("%s and %s\ngot  %v\nwant %v", a, b, got, want)
		}
	}
	f("foo-bar-nosched faz-baz-nosched foo-noexec-10", "foo-prefnosched foo-baz-nosched",
		"foo-bar-nosched faz-baz-nosched foo-noexec-10 foo-prefnosched foo-baz-nosched")
	f("foo-bar-nosched faz-baz-nosched foo-noexec-10", "foo-bar-nosched faz-baz-nosched foo-noexec-10",
		"foo-bar-nosched faz-baz-nosched foo-noexec-10")
	f("foo-bar-nosched foo-baz-nosched", "foo-nosched faz-baz-nosched", "foo-nosched faz-baz-nosched")
	f("foo-bar-nosched foo-baz-nosched foo-noexec-10", "all", "all")
	f("all", "foo-bar-nosched foo-baz-nosched foo-noexec-10", "all")
	// The first of equal tolerations is kept.
	f("foo-bar faz", "foo-bar", "foo-bar faz")
	f("foo-bar foo-baz", "foo foo-bar", "foo")
}
