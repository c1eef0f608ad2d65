# Made with the release; its checksums are in SHA256SUMS too.
class Fastadmit < Formula
  desc "Run admission plugins and policies of Kubernetes on manifests and clusters"
  homepage "https://github.com/fastadmit/fastadmit"
  version "1.2.3-rc.1"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/fastadmit/fastadmit/releases/download/v1.2.3-rc.1/fastadmit-darwin-arm64.tar.gz"
      sha256 "SHA256 of fastadmit-darwin-arm64.tar.gz"
    end
    on_intel do
      url "https://github.com/fastadmit/fastadmit/releases/download/v1.2.3-rc.1/fastadmit-darwin-amd64.tar.gz"
      sha256 "SHA256 of fastadmit-darwin-amd64.tar.gz"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/fastadmit/fastadmit/releases/download/v1.2.3-rc.1/fastadmit-linux-arm64.tar.gz"
      sha256 "SHA256 of fastadmit-linux-arm64.tar.gz"
    end
    on_intel do
      url "https://github.com/fastadmit/fastadmit/releases/download/v1.2.3-rc.1/fastadmit-linux-amd64.tar.gz"
      sha256 "SHA256 of fastadmit-linux-amd64.tar.gz"
    end
  end

  def install
    bin.install "fastadmit"
    generate_completions_from_executable(bin/"fastadmit", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/fastadmit version")
  end
end
