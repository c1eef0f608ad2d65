package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
)

// Costlier returns a sentence for each expression of a policy that may cost more in release to than in from.
func (s *Set) Costlier(from, to admission.Version) (all []string) {
	env, err := cel.NewEnv(cel.OptionalTypes())
	if err != nil {
		return nil
	}
	for _, d := range slices.Concat(s.documents, s.exceptions) {
		var document any
		if d.isBinding() || decode(d.text, &document) != nil {
			continue // the plugin reports it
		}
		eachExpression(document, "", func(path, expression string) {
			parsed, issues := env.Parse(expression)
			if issues.Err() != nil {
				return // it has macros of Kubernetes or errors, which the plugin reports
			}
			if name := calls.Costlier(parsed.NativeRep(), from, to); name != "" {
				all = append(all, fmt.Sprintf("%s: %s calls %s, which costs more since 1.37", &d, path, name))
			}
		})
	}
	return all
}

// eachExpression calls f for each CEL expression of a document, with its path.
func eachExpression(value any, path string, f func(path, expression string)) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			text, isText := value[key].(string)
			if isText && (key == "expression" || strings.HasSuffix(key, "Expression")) {
				f(strings.TrimPrefix(path+"."+key, "."), text)
			}
			eachExpression(value[key], path+"."+key, f)
		}
	case []any:
		for i, element := range value {
			eachExpression(element, fmt.Sprintf("%s[%d]", path, i), f)
		}
	}
}
