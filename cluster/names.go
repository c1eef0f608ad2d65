package cluster

import (
	"errors"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
)

// A nameError is client-go's refusal to ask the API server for a name.
type nameError struct{ error }

// IsInvalidName reports whether err means that no request can be sent for a name because
// it cannot be part of a path: "", ".", "..", or a name with "/" or "%". The text of the
// error is client-go's, as in the messages of in-tree plugins.
//
// The user who sent the request chose the name. So the plugin must decide, as the in-tree
// plugin does, and not fail: with failurePolicy Ignore, a failure would allow the
// request.
func IsInvalidName(err error) bool {
	_, ok := errors.AsType[nameError](err)
	return ok
}

// impossible returns the error for a name that no object of the kind can have, nil
// if one can have it: one for IsInvalidName, or what the API server would answer, which is
// not asked. So no name can spoil a request, by its length for example, and
// nonsense does not use up the requests that others need.
//
// All kinds have names that are DNS subdomains, but those of RBAC, which nobody
// asks for (k8s.io/apimachinery pkg/api/validation NameIsDNSSubdomain).
func (k *Kind) impossible(namespace, name string) error {
	if canBeName(name) && (namespace == "" || canBeName(namespace)) {
		return nil
	}
	request := rest.NewRequestWithClient(new(url.URL), "", rest.ClientContentConfig{}, nil).
		NamespaceIfScoped(namespace, namespace != "").Resource(k.resource).Name(name)
	if err := request.Error(); err != nil {
		return nameError{err}
	}
	return apierrors.NewNotFound(k.Resource(), strings.Clone(name))
}

// canBeName matches no long name: that takes 70 ms for each megabyte.
func canBeName(name string) bool {
	return len(name) <= validation.DNS1123SubdomainMaxLength && len(validation.IsDNS1123Subdomain(name)) == 0
}
