package review

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
)

const podSecurityPlugin = "PodSecurity"

// What the messages of PodSecurity name (k8s.io/pod-security-admission policy): containers or volumes, with the field that they must set
// or not set, and fields of the Pod that are true.
var (
	namedIn  = regexp.MustCompile(`\b(container|volume)s? ("[^"]*"(?:, "[^"]*")*)(?: must (?:not )?set ([a-z]\w*(?:\.[a-z]\w*)*))?`)
	hostTrue = regexp.MustCompile(`\b(host(?:Network|PID|IPC))=true\b`)
)

// podSecurityPaths returns the fields of the object that a message of PodSecurity names, those of containers and volumes by their names.
func (r *reviewer) podSecurityPaths(message string) (paths []string) {
	add := func(path string) {
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
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
	_, said, _ := strings.Cut(message, "violate") // the name of the Pod stands before it
	for _, match := range namedIn.FindAllStringSubmatch(said, -1) {
		lists := []string{"volumes"}
		if match[1] == "container" {
			lists = []string{"initContainers", "containers", "ephemeralContainers"}
		}
		for _, name := range strings.Split(match[2], ", ") {
			for _, list := range lists {
				steps := append(strings.Split(at+"spec", "."), list)
				for i, element := range object.Get(steps...).Elements() {
					if element.Get("name").String() != strings.Trim(name, `"`) {
						continue
					}
					path := at + "spec." + list + "[" + strconv.Itoa(i) + "]"
					if match[3] != "" && element.Get(strings.Split(match[3], ".")...).Exists() {
						path += "." + match[3]
					}
					add(path)
				}
			}
		}
	}
	for _, match := range hostTrue.FindAllStringSubmatch(said, -1) {
		add(at + "spec." + match[1])
	}
	return paths
}
