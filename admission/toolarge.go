package admission

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// MessagesBytesMax limits the messages that a plugin collects for one denial. It is
// enough for a message for each container of the largest Pod that can be stored,
// and small compared to codec.MemoryMax. The denial is truncated to
// codec.MessageBytesMax anyway.
const MessagesBytesMax = 4 << 20

// tooLarge returns the denial for a *codec.SizeError of a review, or for a
// *cluster.TooLargeError of a plugin, nil for other errors. Failure policies and
// enforcements do not apply to this denial: otherwise users could bypass plugins by
// sending or storing large objects.
func tooLarge(fault error) *codec.Status {
	if cluster.IsTooLarge(fault) {
		return &codec.Status{Code: http.StatusForbidden, Reason: string(metav1.StatusReasonForbidden), Message: fault.Error()}
	}
	size, ok := errors.AsType[*codec.SizeError](fault)
	if !ok {
		return nil
	}
	return &codec.Status{
		Code:   http.StatusRequestEntityTooLarge,
		Reason: string(metav1.StatusReasonRequestEntityTooLarge),
		Message: "the object is too large for admission: " + size.Error() +
			"; send one with fewer or shorter lists and strings in it",
	}
}
