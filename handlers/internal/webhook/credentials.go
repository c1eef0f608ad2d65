package webhook

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/internal/files"
)

// recheckPause is how often a kubeconfig file is looked at, at most: as often as
// kube-apiserver looks at its certificates.
const recheckPause = time.Minute

// credentials are those of a kubeconfig file, by the hosts that they are for
// (k8s.io/apiserver pkg/util/webhook/authentication.go). Of a nil one there are none.
type credentials struct {
	file string

	mu      sync.Mutex
	config  *clientcmdapi.Config
	digest  [sha256.Size]byte
	checked time.Time
	version int // grows when the file changes
}

// readCredentials reads a kubeconfig file; "" is that of nobody.
func readCredentials(file string) (*credentials, error) {
	c := &credentials{file: file, config: clientcmdapi.NewConfig()}
	if file == "" {
		return c, nil
	}
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("kubeConfigFile: %w", err)
	}
	return c, nil
}

// read reads the file unless it is what was read before. After an error, what was read
// before stays.
func (c *credentials) read() error {
	c.checked = time.Now()
	content, err := files.Read(c.file)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(content)
	if digest == c.digest {
		return nil
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return errors.New("it is no kubeconfig file") // what the error quotes may be a secret
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = c.file
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return err
	}
	for name, user := range config.AuthInfos {
		if user.AuthProvider != nil {
			return fmt.Errorf("users[%q]: auth provider not supported", name)
		}
		if err := files.Check(user.ClientCertificate, user.ClientKey, user.TokenFile); err != nil {
			return fmt.Errorf("users[%q]: %w", name, err)
		}
	}
	c.config, c.digest = config, digest
	c.version++
	return nil
}

// current returns which version of the file is known, which it looks at now and then.
func (c *credentials) current() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != "" && time.Since(c.checked) > recheckPause {
		_ = c.read() // and goes on with what was read before
	}
	return c.version
}

// configFor returns how to present oneself to a host and port.
func (c *credentials) configFor(target string) (*rest.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := &rest.Config{}
	user := c.user(target)
	if user == nil {
		return config, nil
	}
	config.BearerToken, config.BearerTokenFile = user.Token, user.TokenFile
	if user.Token == "" && user.TokenFile != "" {
		token, err := files.Read(user.TokenFile)
		if err != nil {
			return nil, err
		}
		config.BearerToken = string(token)
	}
	if user.Impersonate != "" {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: user.Impersonate, UID: user.ImpersonateUID, Groups: user.ImpersonateGroups, Extra: user.ImpersonateUserExtra,
		}
	}
	if user.ClientCertificate != "" || len(user.ClientCertificateData) > 0 {
		config.TLSClientConfig = rest.TLSClientConfig{
			CertFile: user.ClientCertificate, CertData: user.ClientCertificateData,
			KeyFile: user.ClientKey, KeyData: user.ClientKeyData,
		}
	}
	config.Username, config.Password = user.Username, user.Password
	if user.Exec != nil {
		config.ExecProvider = user.Exec.DeepCopy()
	}
	return config, nil
}

// user returns the user for a host and port: the one of that name, or of the longest
// suffix behind "*."; with port 443 also without the port; then "*", and then that of the
// current context. Nil is nobody.
func (c *credentials) user(target string) *clientcmdapi.AuthInfo {
	names := suffixes(target)
	if host, port, err := net.SplitHostPort(target); err == nil && port == "443" {
		names = append(names, suffixes(host)...)
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

// suffixes returns a name and the wildcards that stand for it.
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
