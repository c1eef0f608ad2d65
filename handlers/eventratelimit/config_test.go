package eventratelimit

import (
	"fmt"
	"testing"
)

const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"

func TestConfiguration(t *testing.T) {
	f := func(content string, want ...limit) {
		t.Helper()
		c, err := loadConfiguration([]byte(content))
		if err != nil {
			t.Errorf("%s\ngot error %v", content, err)
			return
		}
		if got, want := fmt.Sprint(c.Limits), fmt.Sprint(want); got != want {
			t.Errorf("%s\ngot limits %s, want %s", content, got, want)
		}
	}
	// Upstream's cases (apis/eventratelimit/validation/validation_test.go).
	f(head+"limits: [{type: Server, burst: 5, qps: 1}]", limit{serverLimit, 1, 5, 0})
	f(head+"limits: [{type: Namespace, burst: 10, qps: 2, cacheSize: 100}]", limit{namespaceLimit, 2, 10, 100})
	f(head+"limits: [{type: User, burst: 10, qps: 2, cacheSize: 100}]", limit{userLimit, 2, 10, 100})
	f(head+"limits: [{type: SourceAndObject, burst: 5, qps: 1, cacheSize: 1000}]",
		limit{sourceAndObjectLimit, 1, 5, 1000})
	f(head+`limits:
- {type: Server, burst: 5, qps: 1}
- {type: Namespace, burst: 10, qps: 2, cacheSize: 100}
- {type: SourceAndObject, burst: 25, qps: 10, cacheSize: 1000}
`, limit{serverLimit, 1, 5, 0}, limit{namespaceLimit, 2, 10, 100}, limit{sourceAndObjectLimit, 10, 25, 1000})

	// Other configurations that upstream accepts.
	f(head+"limits: [{type: User, burst: 1, qps: 1}, {type: User, burst: 2, qps: 2}]",
		limit{userLimit, 1, 1, 0}, limit{userLimit, 2, 2, 0})
	f(head+"limits: [{type: Server, burst: 1, qps: 1, cacheSize: -1}]", limit{serverLimit, 1, 1, -1})
	f(head+"limits: [{type: User, burst: 2147483647, qps: 2147483647, cacheSize: 2147483647}]",
		limit{userLimit, 1<<31 - 1, 1<<31 - 1, 1<<31 - 1})
	f(head+"limits: [{type: User, burst: 1, qps: 1, cacheSize: null}]", limit{userLimit, 1, 1, 0})
	f("\n{\n\t\"apiVersion\": \"eventratelimit.admission.k8s.io\\/v1alpha1\", \"kind\": \"Configuration\",\n"+
		"\t\"limits\": [{\"type\": \"User\", \"burst\": 1, \"qps\": 1}]\n}\n", limit{userLimit, 1, 1, 0})
}

func TestConfigurationErrors(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		_, err := loadConfiguration([]byte(content))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s\ngot error  %s\nwant error %s", content, got, want)
		}
	}
	const supported = `supported values: "Server", "Namespace", "User", "SourceAndObject"`
	// Upstream's cases (apis/eventratelimit/validation/validation_test.go).
	f(head, "limits: Invalid value: null: must not be empty")
	f(head+"limits: [{burst: 25, qps: 10, cacheSize: 1000}]",
		`limits[0].type: Unsupported value: "": `+supported)
	f(head+"limits: [{type: unknown-type, burst: 25, qps: 10, cacheSize: 1000}]",
		`limits[0].type: Unsupported value: "unknown-type": `+supported)
	f(head+"limits: [{type: Server, qps: 1}]", "limits[0].burst: Invalid value: 0: must be positive")
	f(head+"limits: [{type: Server, burst: 5}]", "limits[0].qps: Invalid value: 0: must be positive")
	f(head+"limits: [{type: Namespace, burst: 10, qps: 2, cacheSize: -1}]",
		"limits[0].cacheSize: Invalid value: -1: must not be negative")

	// No configuration.
	if _, err := loadConfiguration(nil); fmt.Sprint(err) != "limits: Invalid value: null: must not be empty" {
		t.Errorf("no configuration: got error %v", err)
	}
	f(head+"limits: []", "limits: Invalid value: []: must not be empty")
	f("", `[apiVersion: Unsupported value: "": supported values: "eventratelimit.admission.k8s.io/v1alpha1", `+
		`kind: Unsupported value: "": supported values: "Configuration", limits: Invalid value: null: must not be empty]`)
	f("apiVersion: eventratelimit.admission.k8s.io/v1\nkind: configuration\nlimits: [{type: Server, burst: 5, qps: 1}]",
		`[apiVersion: Unsupported value: "eventratelimit.admission.k8s.io/v1": `+
			`supported values: "eventratelimit.admission.k8s.io/v1alpha1", `+
			`kind: Unsupported value: "configuration": supported values: "Configuration"]`)

	// All errors together.
	f(head+"Limits: []\nlimits: [{type: server, burst: -1, qps: -2, cacheSize: -3, qbs: 1}, {type: Server, qps: 1}]",
		`[unknown field "Limits", did you mean limits?, unknown field "limits[0].qbs", did you mean qps?, `+
			`limits[0].type: Unsupported value: "server": `+supported+", "+
			"limits[0].burst: Invalid value: -1: must be positive, "+
			"limits[0].qps: Invalid value: -2: must be positive, "+
			"limits[0].cacheSize: Invalid value: -3: must not be negative, "+
			"limits[1].burst: Invalid value: 0: must be positive]")
	f(`{"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration",
		"limits": [{"type": "User", "qps": 1, "qps": 2, "burst": 1}]}`, `duplicate field "limits[0].qps"`)

	// Files that cannot be decoded.
	f(head+"limits: [{type: Server, qps: 1, qps: 2, burst: 1}]",
		"cannot decode configuration: yaml: unmarshal errors:\n  line 3: key \"qps\" already set in map")
	f(head+"limits: [{type: Server", "cannot decode configuration: yaml: line 3: did not find expected ',' or '}'")
	f("- a", "cannot decode configuration: "+
		"json: cannot unmarshal array into Go value of type eventratelimit.configuration")
	f(head+"limits: [{type: Server, qps: 2147483648, burst: 1}]", "cannot decode configuration: "+
		"json: cannot unmarshal number 2147483648 into Go struct field limit.limits.qps of type int32")
	f(head+"limits: [{type: Server, qps: 0.5, burst: 1}]", "cannot decode configuration: "+
		"json: cannot unmarshal number 0.5 into Go struct field limit.limits.qps of type int32")
}
