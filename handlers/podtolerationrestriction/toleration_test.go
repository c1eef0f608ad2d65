package podtolerationrestriction

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
	f(`{"key":"foo","operator":"Exists","value":"bar"}`,
		`default[0].operator: Invalid value: "bar": value must be empty when `+"`operator` is 'Exists'")
	f(`{"key":"foo","operator":"Exists","tolerationSeconds":20}`,
		`default[0].effect: Invalid value: "": effect must be 'NoExecute' when `+"`tolerationSeconds` is set")
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
