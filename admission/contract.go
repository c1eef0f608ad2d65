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

// checkDenial returns an error if the code of a plugin's denial is not that of an HTTP
// error. kube-apiserver would replace such a code.
func checkDenial(denial *codec.Status) error {
	if denial.Code < http.StatusBadRequest || denial.Code > 599 {
		return fmt.Errorf("it denied with code %d and message %q, want a code from 400 to 599", denial.Code, denial.Message)
	}
	return nil
}

// mayPatch returns an error if a plugin must not change the object. kube-apiserver would
// fail the request because of such a patch, even with failurePolicy Ignore.
func mayPatch(review *codec.Review, phase Phase) error {
	switch op := review.Operation(); {
	case phase == Validate:
		return errors.New("it changed the object while validating")
	case op != codec.Create && op != codec.Update && op != codec.Connect: // the object of CONNECT is its options
		return fmt.Errorf("it changed the object of a %s request", op)
	}
	return nil
}

// truncate returns the status with its texts truncated to the limits of package codec. It
// does not change the plugin's own status.
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
