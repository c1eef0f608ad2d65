package podtolerationrestriction

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/handlers/internal/tolerations"
)

// known are the tolerations in an annotation or the configuration.
type known struct {
	*tolerations.Given
	set *tolerations.Set // with the same tolerations
	err error            // why they could not be parsed
}

func newTolerations(from []corev1.Toleration) *known {
	given, err := tolerations.NewGiven(from)
	if err != nil {
		return &known{err: err}
	}
	return &known{Given: given, set: given.Set()}
}

// parse parses an annotation, which may be empty.
func parse(text string) *known {
	var list []corev1.Toleration
	if text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return &known{err: err}
		}
	}
	return newTolerations(list)
}
