package translate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Read is what a policy reads from the cluster with resource.Get or resource.List.
type Read struct {
	APIVersion, Resource string
	// Namespace and Name are empty for objects of any namespace and any name: if they are computed.
	Namespace, Name string
}

// readsMax is how many different Reads a policy may have. Kubernetes has some 60 resources; a policy reads one or two.
const readsMax = 16

// The arguments of resource.Get and resource.List.
const (
	argAPIVersion = iota
	argResource
	argNamespace
	argName // of Get
)

var (
	// readCall matches a call that reads objects, up to its parenthesis.
	readCall = regexp.MustCompile(`(^|[^.\w])resource\s*\.\s*([gG]et|[lL]ist)\s*\(`)
	// constantText matches a string without escapes.
	constantText = regexp.MustCompile(`^\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*$`)
)

// reads returns what the expressions of a policy read. In a policy of a namespace, Kyverno's functions lack the
// argument for the namespace; reads adds it.
func (t *translator) reads(h *head, spec *celSpec) (all []Read) {
	if !t.Reads {
		return nil // expand refuses the functions
	}
	namespace := ""
	if strings.HasPrefix(h.Kind, "Namespaced") {
		namespace = h.Metadata.Namespace
	}
	eachExpression(spec, func(field string, expression *string) {
		for from, calls := 0, 0; ; calls++ {
			found := readCall.FindStringSubmatchIndex((*expression)[from:])
			if found == nil {
				return
			}
			name, open := (*expression)[from+found[4]:from+found[5]], from+found[1]-1
			from = open
			if calls == callsMax || len(*expression) > writtenOutBytesMax { // each reads the expression from its beginning
				t.refuse(h, field, "it may call resource.Get and resource.List at most %d times, and have %d bytes: divide the expression",
					callsMax, writtenOutBytesMax)
				return
			}
			if inText(*expression, open) {
				continue
			}
			end := skipParentheses(*expression, open)
			if end < 0 {
				return // compiling it reports the error
			}
			args := arguments((*expression)[open+1 : end-1])
			if namespace != "" && len(args) >= argNamespace {
				args = slices.Insert(args, argNamespace, " "+literal(namespace))
				*expression = (*expression)[:open+1] + strings.Join(args, ",") + (*expression)[end-1:]
			}
			read, err := readOf(strings.EqualFold(name, "get"), args)
			switch {
			case err != nil:
				t.refuse(h, field, "%v", err)
			case slices.Contains(all, read):
			case len(all) == readsMax:
				t.refuse(h, field, "it reads more than %d different resources, namespaces or names: divide the policy", readsMax)
				return
			default:
				all = append(all, read)
			}
		}
	})
	return all
}

// readOf returns what a call with these arguments reads.
func readOf(isGet bool, args []string) (r Read, err error) {
	constant := func(i int) (text string, ok bool) {
		if i >= len(args) {
			return "", false
		}
		found := constantText.FindStringSubmatch(args[i])
		if found == nil {
			return "", false
		}
		return found[1] + found[2], true
	}
	version, isVersion := constant(argAPIVersion)
	resource, isResource := constant(argResource)
	_, err = schema.ParseGroupVersion(version)
	if !isVersion || !isResource || version == "" || resource == "" || strings.Contains(resource, "/") || err != nil {
		return r, fmt.Errorf("apiVersion and resource of resource.Get and resource.List must be texts such as 'v1', 'pods', "+
			"because fastadmit watches what policies read; got %s: write a call for each resource, or keep Kyverno for it",
			strings.TrimSpace(strings.Join(args, ",")))
	}
	r = Read{APIVersion: version, Resource: resource}
	r.Namespace, _ = constant(argNamespace)
	if isGet {
		r.Name, _ = constant(argName)
	}
	return r, nil
}

// arguments divides the arguments of a call.
func arguments(text string) (all []string) {
	begin, depth := 0, 0
	for i := 0; i < len(text); {
		if end := skipText(text, i); end != i {
			i = end
			continue
		}
		switch text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 0 {
				all, begin = append(all, text[begin:i]), i+1
			}
		}
		i++
	}
	return append(all, text[begin:])
}
