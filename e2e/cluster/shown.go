package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// random are the parts of objects and messages that differ between clusters, and what replaces
// them.
var random = []struct {
	pattern *regexp.Regexp
	shown   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\\?"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\\?"`), `"TIME"`}, // with backslashes in a message
	{regexp.MustCompile(`"10\.0\.\d+\.\d+"`), `"CLUSTER-IP"`},
	{regexp.MustCompile(`"resourceVersion":"\d+"`), `"resourceVersion":"N"`},
	{regexp.MustCompile(`"token":"[^"]+"`), `"token":"TOKEN"`},
	{regexp.MustCompile(`"nodePort":\d+`), `"nodePort":0`},
	{regexp.MustCompile("\u00a0"), " "},                           // go-cmp takes one or the other in each process
	{regexp.MustCompile(`no such key: \d{3,}`), "no such key: N"}, // a resource version in an expression
}

// Shown returns the object, or the error, with its random parts replaced. Generate is the
// generateName of the object, empty if it has none.
func Shown(object *unstructured.Unstructured, err error, generate string) string {
	var text string
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		own := status.Status()
		Unattributed(&own)
		text = "status " + Normal(own)
	case err != nil:
		text = "error " + err.Error()
	default:
		text = "object " + Normal(object)
	}
	text = withoutVolumeNames(text)
	if generate != "" {
		name := regexp.MustCompile(regexp.QuoteMeta(generate) + "[a-z0-9]{5}")
		text = name.ReplaceAllString(text, generate+"RANDOM")
	}
	return text
}

// volumeName matches ServiceAccount's name for a volume.
var volumeName = regexp.MustCompile(`"kube-api-access-[a-z0-9]{5}"`)

// withoutVolumeNames replaces these names by numbers, in the order in which they occur.
func withoutVolumeNames(text string) string {
	var names []string
	return volumeName.ReplaceAllStringFunc(text, func(name string) string {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		return fmt.Sprintf(`"kube-api-access-RANDOM-%d"`, slices.Index(names, name))
	})
}

// Normal returns the value as JSON, with its random parts replaced.
func Normal(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	for _, r := range random {
		text = r.pattern.ReplaceAll(text, []byte(r.shown))
	}
	return string(text)
}

// Warnings collects an API server's warnings, for WithWarnings.
type Warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *Warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }
