package translate

import (
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// parameters are the parameters that a policy reads, nil for none.
type parameters struct {
	kind *admissionregistrationv1.ParamKind
	ref  *admissionregistrationv1.ParamRef
}

const (
	quoted    = `\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*`
	quotesAll = 4 // arguments of resource.Get
)

var (
	getCall      = regexp.MustCompile(`\bresource\.[gG]et\(` + strings.TrimSuffix(strings.Repeat(quoted+",", quotesAll), ",") + `\)`)
	getNamespace = regexp.MustCompile(`\bresource\.[gG]et\(\s*["']v1["']\s*,\s*["']namespaces["']\s*,\s*["']["']\s*,\s*` +
		`(?:request\.namespace|object\.metadata\.namespace)\s*\)`)
)

// parameters replaces calls of resource.Get: one for the Namespace of the object by namespaceObject, and
// one for another object with a fixed name by params, the parameter of the policy. A policy has only one
// parameter, so calls for several objects are not replaced.
func (t *translator) parameters(h *head, spec *celSpec) (p parameters) {
	known := make(map[string][]string)
	eachExpression(spec, func(_ string, expression *string) {
		*expression = getNamespace.ReplaceAllString(*expression, "namespaceObject")
		for _, found := range getCall.FindAllStringSubmatch(*expression, -1) {
			var arguments []string
			for i := 1; i < len(found); i += 2 {
				arguments = append(arguments, found[i]+found[i+1])
			}
			known[strings.Join(arguments, ",")] = arguments
		}
	})
	if len(known) != 1 {
		return p
	}
	for _, a := range known {
		version, err := schema.ParseGroupVersion(a[0])
		kind := builtIn().KindOf(version.WithResource(a[1]))
		if err != nil || kind == "" || a[3] == "" {
			return p
		}
		p.kind = &admissionregistrationv1.ParamKind{APIVersion: a[0], Kind: kind}
		p.ref = &admissionregistrationv1.ParamRef{Name: a[3], Namespace: a[2], ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	}
	eachExpression(spec, func(_ string, expression *string) { *expression = getCall.ReplaceAllString(*expression, "params") })
	t.note(h, "spec", "it reads %s %q of the cluster, which is the parameter of the translation; without this object, requests are denied",
		p.kind.Kind, strings.TrimPrefix(p.ref.Namespace+"/"+p.ref.Name, "/"))
	return p
}
