package webhook

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// credentials are the users in a kubeconfig file, by the hosts that they are for
// (k8s.io/apiserver pkg/util/webhook/authentication.go). The file contains the contents of
// files instead of their names; see admission.Setup.
type credentials struct{ config *clientcmdapi.Config }

// readCredentials parses a kubeconfig file; nil has no users.
func readCredentials(kubeconfig []byte) (*credentials, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("kubeConfigFile: not a kubeconfig file") // the error may quote a secret
	}
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		user := config.AuthInfos[name]
		if user.AuthProvider != nil {
			return nil, fmt.Errorf("kubeConfigFile: users[%q]: auth provider not supported", name)
		}
	}
	return &credentials{config}, nil
}

// configFor returns the client configuration for a host and port.
func (c *credentials) configFor(target string) *rest.Config {
	user := c.user(target)
	if user == nil {
		return new(rest.Config)
	}
	config := &rest.Config{
		BearerToken: user.Token, Username: user.Username, Password: user.Password,
		TLSClientConfig: rest.TLSClientConfig{CertData: user.ClientCertificateData, KeyData: user.ClientKeyData},
	}
	if user.Impersonate != "" {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: user.Impersonate, UID: user.ImpersonateUID, Groups: user.ImpersonateGroups, Extra: user.ImpersonateUserExtra,
		}
	}
	if user.Exec != nil {
		config.ExecProvider = user.Exec.DeepCopy()
	}
	return config
}

// user returns the user for a host and port. In this order, it looks for the same name, for
// the longest suffix after "*.", and, with port 443, for these without the port; then for
// "*", and for the user of the current context. Nil means no credentials.
func (c *credentials) user(target string) *clientcmdapi.AuthInfo {
	names := suffixes(target)
	if host, port, err := net.SplitHostPort(target); err == nil && port == "443" {
		names = slices.Concat(names, suffixes(host))
	}
	names = append(names, "*")
	for _, name := range names {
		if user := c.config.AuthInfos[name]; user != nil {
			return user
		}
	}
	if used := c.config.Contexts[c.config.CurrentContext]; used != nil && used.AuthInfo != "" {
		return c.config.AuthInfos[used.AuthInfo]
	}
	return nil
}

// suffixes returns a name and all wildcards that match it.
func suffixes(name string) []string {
	names := []string{name}
	for {
		_, rest, ok := strings.Cut(name, ".")
		if !ok {
			return names
		}
		names, name = append(names, "*."+rest), rest
	}
}
