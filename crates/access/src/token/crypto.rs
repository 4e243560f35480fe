//! jsonwebtoken's backend: signatures are verified with ring. Nothing is signed.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{self as ring_signature, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use signature::Verifier;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(RingVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes jsonwebtoken use ring, in the whole process.
pub(super) fn install() {
    // It fails if another call has done so.
    let _ = PROVIDER.install_default();
}

#[derive(Debug)]
struct RingVerifier {
    algorithm: Algorithm,
    key: RingKey,
}

#[derive(Debug)]
enum RingKey {
    Rsa(&'static RsaParameters, RsaPublicKeyComponents<Vec<u8>>),
    Raw(UnparsedPublicKey<Vec<u8>>),
}

impl RingVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        let rsa = |parameters| match (key.family(), key.kind()) {
            (AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents {
                    n: n.clone(),
                    e: e.clone(),
                };
                Ok(RingKey::Rsa(parameters, key))
            }
            _ => Err(Error::from(ErrorKind::InvalidAlgorithm)),
        };
        let raw = |family, verification: &'static dyn ring_signature::VerificationAlgorithm| {
            if key.family() != family {
                return Err(Error::from(ErrorKind::InvalidAlgorithm));
            }
            let bytes = key.try_get_as_bytes()?.to_vec();
            Ok(RingKey::Raw(UnparsedPublicKey::new(verification, bytes)))
        };
        let key = match algorithm {
            Algorithm::RS256 => rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256)?,
            Algorithm::RS384 => rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384)?,
            Algorithm::RS512 => rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512)?,
            Algorithm::PS256 => rsa(&ring_signature::RSA_PSS_2048_8192_SHA256)?,
            Algorithm::PS384 => rsa(&ring_signature::RSA_PSS_2048_8192_SHA384)?,
            Algorithm::PS512 => rsa(&ring_signature::RSA_PSS_2048_8192_SHA512)?,
            Algorithm::ES256 => raw(AlgorithmFamily::Ec, &ring_signature::ECDSA_P256_SHA256_FIXED)?,
            Algorithm::ES384 => raw(AlgorithmFamily::Ec, &ring_signature::ECDSA_P384_SHA384_FIXED)?,
            Algorithm::EdDSA => raw(AlgorithmFamily::Ed, &ring_signature::ED25519)?,
            _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
        };
        Ok(Self { algorithm, key })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            RingKey::Rsa(parameters, key) => key.verify(parameters, message, signature),
            RingKey::Raw(key) => key.verify(message, signature),
        };
        verified.map_err(|_unspecified| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
