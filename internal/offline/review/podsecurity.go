package review

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	podSecurityPlugin = "PodSecurity"
	// pathsMax is how many fields a finding of PodSecurity names: more than somebody reads. Its message may name thousands.
	pathsMax = 100
)

// What the messages of PodSecurity name (k8s.io/pod-security-admission policy): containers or volumes, with the field that they must set
// or not set, and fields of the Pod that are true.
var (
	namedIn  = regexp.MustCompile(`\b(container|volume)s? ("[^"]*"(?:, "[^"]*")*)(?: must (?:not )?set ([a-z]\w*(?:\.[a-z]\w*)*))?`)
	hostTrue = regexp.MustCompile(`\b(host(?:Network|PID|IPC))=true\b`)
)

// podSecurityPaths returns the fields of the object that a message of PodSecurity names, those of containers and volumes by their names.
func (r *reviewer) podSecurityPaths(message string) (paths []string) {
	if r.written.given == nil {
		return nil
	}
	at := ""
	if kind := r.written.kind; kind.Kind != "Pod" {
		template := r.PodTemplatePaths.Template(schema.GroupResource{Group: kind.Group, Resource: r.result.Resource})
		if template == "" {
			return nil
		}
		at = template + "."
	}
	var object codec.Object
	object.Reset(r.written.given)
	named := elementsByName(object.Get(strings.Split(at+"spec", ".")...), at+"spec.")
	add := func(path string) (isFull bool) {
		if len(paths) < pathsMax && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
		return len(paths) == pathsMax
	}
	_, said, _ := strings.Cut(message, "violate") // the name of the Pod stands before it
	for _, match := range namedIn.FindAllStringSubmatch(said, -1) {
		kind, names, field := match[1], match[2], match[3]
		for name := range strings.SplitSeq(names, ", ") {
			for _, element := range named[kind+" "+strings.Trim(name, `"`)] {
				path := element.path
				if field != "" && element.value.Get(strings.Split(field, ".")...).Exists() {
					path += "." + field
				}
				if add(path) {
					return paths
				}
			}
		}
	}
	for _, match := range hostTrue.FindAllStringSubmatch(said, -1) {
		add(at + "spec." + match[1])
	}
	return paths
}

// A namedElement is a container or a volume of a Pod.
type namedElement struct {
	path  string
	value codec.Value
}

// elementsByName returns the containers and volumes of a Pod's spec, by their kind and name, as in "container app". A Pod may have many.
func elementsByName(spec codec.Value, at string) map[string][]namedElement {
	named := make(map[string][]namedElement)
	for _, list := range [...]struct{ kind, name string }{
		{"container", "initContainers"}, {"container", "containers"}, {"container", "ephemeralContainers"}, {"volume", "volumes"},
	} {
		for i, element := range spec.Get(list.name).Elements() {
			key := list.kind + " " + element.Get("name").String()
			named[key] = append(named[key], namedElement{at + list.name + "[" + strconv.Itoa(i) + "]", element})
		}
	}
	return named
}
