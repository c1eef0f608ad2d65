package cluster

import (
	"errors"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
)

// A nameError is client-go's error for a name that cannot be part of a path.
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

// checkName returns an error if no object of the kind can have the name: one for
// IsInvalidName, or the NotFound error that the API server would return. No request is
// sent for such a name. So a name cannot make a request fail, for example by its length,
// and invalid names do not use up the rate of requests.
//
// The names of all kinds are DNS subdomains (k8s.io/apimachinery pkg/api/validation
// NameIsDNSSubdomain), except those of RBAC, which no plugin requests.
func (k *Kind) checkName(namespace, name string) error {
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

// canBeName reports whether name is a DNS subdomain. It checks the length first, because
// the regular expression takes 70 ms for each megabyte.
func canBeName(name string) bool {
	return len(name) <= validation.DNS1123SubdomainMaxLength && len(validation.IsDNS1123Subdomain(name)) == 0
}
