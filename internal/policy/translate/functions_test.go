package translate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// TestFunctions translates policies that call functions of Kyverno: those that fastadmit evaluates, and the others.
func TestFunctions(t *testing.T) {
	f := func(expression string, o translate.Options, functions bool, problem string) {
		t.Helper()
		document := celPolicy("ValidatingPolicy", fmt.Sprintf("%s  validations: [{expression: %q}]\n", noAuto, expression))
		result := translate.Translate(split(t, document), o)
		var problems string
		for _, p := range result.Problems {
			problems += p.Error()
		}
		if problem != "" || problems != "" {
			if problem == "" || !strings.Contains(problems, problem) {
				t.Errorf("%s: got %q, want %q", expression, problems, problem)
			}
			return
		}
		if got := result.Policies[0]; got.Functions != functions || got.Validating.Spec.Validations[0].Expression != expression {
			t.Errorf("%s: got %v %s, want %v", expression, got.Functions, got.Validating.Spec.Validations[0].Expression, functions)
		}
	}
	evaluated := translate.Options{Functions: true}
	for _, call := range []string{"sha1('a')", "hash.sha1('a')", "sha256('a')", "hash.sha256('a')", "md5('a')", "hash . md5 ('a')",
		"time.now()", "time.truncate(a, b)", "time.toCron(a)", "json.marshal(a)", "json.unmarshal(a)", "yaml.parse(a)",
		"x509.decode(a)", "base64.decode(a)", "base64.encode(a)",
		"listObjToMap(a, a, b, b)", "transform.listObjToMap(a, a, b, b)"} {
		f(call+" == object.a", evaluated, true, "")
		f(call+" == object.a", translate.Options{}, false, "or have fastadmit evaluate the document itself")
	}
	f("object.sha256('a') == 'time.now()'", evaluated, false, "")
	f("resource.Get('v1', 'pods', object.a, object.b) == null", translate.Options{Functions: true, Reads: true}, true, "")
	f("resource.Get('v1', 'pods', object.a, object.b) == null", evaluated, false, "expressions of Kubernetes read no other objects")
	for call, reason := range map[string]string{
		"random()":                      "random of Kyverno has no translation: the same request would be answered differently each time",
		"random.random('a')":            "random.random of Kyverno has no translation: the same request would be answered differently",
		"gzip.decompress(a)":            "a short text of a user may become a very long one",
		"http.Get('a')":                 "ask no servers",
		"image.GetMetadata('a')":        "ask no registries",
		"verifyImageSignatures('a')":    "it verifies signatures",
		"generator.Apply('a', b)":       "it creates objects",
		"globalContext.Get('a', '')":    "read no other objects",
		"sha256('a') == '' || random()": "the same request would be answered differently each time",
	} {
		f(call, translate.Options{Functions: true, Reads: true}, false, reason)
	}
}
