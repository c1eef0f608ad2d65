package admission

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/fastadmit/fastadmit/codec"
)

// errNothing is the error of a plugin that failed without one.
var errNothing = errors.New("it failed and did not say why: admission.Errored was called with nil")

// checkDenial says what is wrong with a plugin's denial. kube-apiserver would
// make a code of its own of one that is no HTTP error.
func checkDenial(denial *codec.Status) error {
	if denial.Code < http.StatusBadRequest || denial.Code > 599 {
		return fmt.Errorf("it denied with code %d and message %q, want a code from 400 to 599", denial.Code, denial.Message)
	}
	return nil
}

// mayPatch says why an object must not have been changed. kube-apiserver fails
// the request on such a patch, even under failurePolicy Ignore.
func mayPatch(review *codec.Review, phase Phase) error {
	switch op := review.Operation(); {
	case phase == Validate:
		return errors.New("it changed the object while validating")
	case op != codec.Create && op != codec.Update && op != codec.Connect: // whose options are an object, too
		return fmt.Errorf("it changed the object of a %s request", op)
	}
	return nil
}

// truncate returns the status with its text within the bounds of package codec.
// Nothing that the plugin holds is changed.
func truncate(status codec.Status) codec.Status {
	status.Message = codec.TruncateString(status.Message, codec.MessageBytesMax)
	left := codec.DetailsBytesMax
	short := func(text *string) {
		*text = codec.TruncateString(*text, max(left, codec.TruncatedMin))
		left -= codec.JSONLen(*text)
	}
	d := &status.Details
	for _, text := range [...]*string{&status.Reason, &d.Name, &d.Group, &d.Kind, &d.UID} {
		short(text)
	}
	for i := range d.Causes {
		if left -= len(`{"reason":"","message":"","field":""},`); left <= 0 {
			d.Causes = slices.Clip(d.Causes[:i])
			break
		}
		cause := d.Causes[i]
		short(&cause.Type)
		short(&cause.Message)
		short(&cause.Field)
		if cause != d.Causes[i] {
			d.Causes = slices.Clone(d.Causes)
			d.Causes[i] = cause
		}
	}
	return status
}
