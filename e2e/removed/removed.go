// Package removed is what the commands in this folder share. Each of them runs admission plugins that its release of
// Kubernetes was the last to have. A command is a process of its own because no two releases of Kubernetes can be linked
// into one.
//
// A command reads JSON from standard input: first the objects of the cluster, then AdmissionReviews, which have a member
// "phase", "mutate" or "validate". It writes an answer for each review to standard output: an [Answer], or the Status alone
// if its plugins only validate. Package oracle starts it.
package removed

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// An Answer is what a plugin that mutates did to an object: the Status of its denial, or the object as the release knows it
// before and after. The types are those of the release.
type Answer struct {
	Status        any
	Before, After any
	Warnings      []string
	Annotations   map[string]string
}

// Serve writes what answer returns for each review until the end of standard input. Request is the release's type of
// AdmissionRequest. Other objects are given to know, unless that is nil.
func Serve[Request any](know func(kind string, object []byte) error, answer func(r *Request, phase string) (any, error)) error {
	objects, answers := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var object json.RawMessage
		if err := objects.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot read an object or review: %w", err)
		}
		var review struct {
			Kind    string
			Phase   string
			Request json.RawMessage
		}
		if err := json.Unmarshal(object, &review); err != nil {
			return fmt.Errorf("cannot decode %s: %w", object, err)
		}
		if review.Kind != "AdmissionReview" {
			if know == nil {
				continue
			}
			if err := know(review.Kind, object); err != nil {
				return fmt.Errorf("cannot use %s: %w", object, err)
			}
			continue
		}
		request := new(Request)
		if err := json.Unmarshal(review.Request, request); err != nil {
			return fmt.Errorf("cannot decode the request %s: %w", review.Request, err)
		}
		a, err := answer(request, review.Phase)
		if err != nil {
			return fmt.Errorf("cannot answer %s: %w", review.Request, err)
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("cannot write an answer: %w", err)
		}
	}
}
