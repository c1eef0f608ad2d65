package admission

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// MessagesBytesMax limits the messages that a plugin collects for one denial. It is
// enough for a message for each container of the largest Pod that can be stored,
// and small compared to codec.MemoryMax. The denial is truncated to
// codec.MessageBytesMax anyway.
const MessagesBytesMax = 4 << 20

// tooLarge returns the denial that a fault of a review amounts to if that is a
// *codec.SizeError, otherwise nil. It is a denial whatever the failure policies
// and enforcements are, or who sends an object could switch plugins off by its
// size.
func tooLarge(fault error) *codec.Status {
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
