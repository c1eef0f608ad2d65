package podtolerationrestriction

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// shorthand returns the toleration that a name of upstream's own test
// (pkg/util/tolerations/tolerations_test.go) stands for: the key, the value if it
// is one, the effect, the seconds.
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

const everything = "all all-nosched all-noexec foo foo-bar foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched faz-baz-nosched " +
	"foo-prefnosched foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10"

// TestCovers has upstream's own cases: what covers what, and nothing else.
func TestCovers(t *testing.T) {
	f := func(name, covered string) {
		t.Helper()
		one := newTolerations(list(name)).entries[0]
		for _, other := range strings.Fields(everything) {
			want := other == name || strings.Contains(" "+covered+" ", " "+other+" ")
			if got := one.Covers(&newTolerations(list(other)).entries[0].Toleration); got != want {
				t.Errorf("%s covers %s: got %v", name, other, got)
			}
		}
	}
	f("all", everything)
	f("all-nosched", "foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched faz-baz-nosched")
	f("all-noexec", "foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10")
	f("foo", "foo-bar foo-nosched foo-bar-nosched foo-baz-nosched foo-prefnosched foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10")
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
		entries := slices.Concat(newTolerations(list(a)).entries, newTolerations(list(b)).entries)
		if _, err := merge(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, e := range entries {
			if e.kept {
				kept = append(kept, e.json)
			}
		}
		var wanted []string
		for _, e := range newTolerations(list(want)).entries {
			wanted = append(wanted, e.json)
		}
		if got, want := strings.Join(kept, " "), strings.Join(wanted, " "); got != want {
			t.Errorf("%s and %s\ngot  %s\nwant %s", a, b, got, want)
		}
	}
	f("foo-bar-nosched faz-baz-nosched foo-noexec-10", "foo-prefnosched foo-baz-nosched",
		"foo-bar-nosched faz-baz-nosched foo-noexec-10 foo-prefnosched foo-baz-nosched")
	f("foo-bar-nosched faz-baz-nosched foo-noexec-10", "foo-bar-nosched faz-baz-nosched foo-noexec-10",
		"foo-bar-nosched faz-baz-nosched foo-noexec-10")
	f("foo-bar-nosched foo-baz-nosched", "foo-nosched faz-baz-nosched", "foo-nosched faz-baz-nosched")
	f("foo-bar-nosched foo-baz-nosched foo-noexec-10", "all", "all")
	f("all", "foo-bar-nosched foo-baz-nosched foo-noexec-10", "all")
	// Of the same, the first.
	f("foo-bar faz", "foo-bar", "foo-bar faz")
	f("foo-bar foo-baz", "foo foo-bar", "foo")
}

// TestValidateTolerations has upstream's own cases, and one of each fault.
func TestValidateTolerations(t *testing.T) {
	f := func(toleration, want string) {
		t.Helper()
		var one corev1.Toleration
		if err := json.Unmarshal([]byte(toleration), &one); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := validateTolerations([]corev1.Toleration{one}, field.NewPath("default")).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", toleration, got, want)
		}
	}
	f(`{"key":"foo","operator":"Exists","value":"","effect":"NoExecute","tolerationSeconds":20}`, "")
	f(`{"key":"foo","operator":"Equal","value":"bar","effect":"NoSchedule"}`, "")
	f(`{"key":"foo","value":"bar","effect":"PreferNoSchedule"}`, "")
	f(`{"operator":"Exists"}`, "")
	f(`{"operator":"Equal","value":"bar"}`, "default[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, "+
		"which means \"match all values and all keys\"")
	f(`{"key":"foo","operator":"Exists","value":"bar"}`, `default[0].operator: Invalid value: "bar": value must be empty when `+"`operator` is 'Exists'")
	f(`{"key":"foo","operator":"Exists","tolerationSeconds":20}`, `default[0].effect: Invalid value: "": effect must be 'NoExecute' when `+"`tolerationSeconds` is set")
	f(`{"key":"foo","operator":"Exists","effect":"NoScheduleNoAdmit"}`,
		`default[0].effect: Unsupported value: "NoScheduleNoAdmit": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`)
	f(`{"key":"foo","operator":"Lt","value":"1"}`, `default[0].operator: Unsupported value: "Lt": supported values: "Equal", "Exists"`)
	f(`{"key":"a b","operator":"Exists"}`, `default[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, `+
		`'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', `+
		`regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`)
	f(`{"key":"a","value":"a b"}`, `default[0].operator: Invalid value: "a b": a valid label must be an empty string or consist of `+
		`alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or `+
		`'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`)
}
